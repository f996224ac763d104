"""How a Whisper is opened in CTranslate2: precision, threads, and cuBLAS out of its wheel."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from trimodal.errors import ArtefactError
from trimodal.manifest import Manifest
from trimodal.speech.engines import ctranslate2_model
from trimodal.speech.engines.ctranslate2_model import (
    TINY_BYTES,
    compute_type,
    open_model,
    preload_cublas,
    threads,
)
from trimodal.speech.settings import RecogniseSettings


def manifest(precision: str) -> Manifest:
    return Manifest(
        task="speech",
        runtime="ctranslate2",
        runtime_version="4.8.5",
        precision=precision,
        source="x",
        source_sha256="0",
        command="python build/speech_ctranslate2.py x",
    )


def settings(**changes: object) -> RecogniseSettings:
    return RecogniseSettings.model_validate({"artefact": "x", **changes})


@pytest.mark.parametrize(
    ("precision", "cpu", "cuda"),
    [("int8", "int8", "int8_float16"), ("float16", "float32", "float16"), ("float32", "float32", "float32")],
)
def test_the_precision_decides_how_each_device_computes(precision: str, cpu: str, cuda: str) -> None:
    assert compute_type(Path("a"), manifest(precision), "cpu") == cpu
    assert compute_type(Path("a"), manifest(precision), "cuda") == cuda


def test_an_unknown_precision_is_named() -> None:
    with pytest.raises(ArtefactError, match="precision int3 .known: int8, "):
        compute_type(Path("a"), manifest("int3"), "cpu")


def test_a_tiny_model_gets_one_thread_unless_told_otherwise(tmp_path: Path) -> None:
    weights = tmp_path / "model.bin"
    weights.write_bytes(b"x")
    assert threads(tmp_path, settings()) == 1
    assert threads(tmp_path, settings(intra_op_threads=3)) == 3
    with weights.open("wb") as file:
        file.truncate(TINY_BYTES)
    assert threads(tmp_path, settings()) == settings().threads


def test_what_does_not_open_is_one_sentence_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(
        ArtefactError, match="cannot be opened .*python build/speech_ctranslate2.py x"
    ) as error:
        open_model(tmp_path, manifest("int8"), settings())
    assert "\n" not in str(error.value)


def test_cublas_comes_out_of_its_wheel_in_the_order_of_its_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia").mkdir()  # a namespace package, as NVIDIA's wheels share it
    monkeypatch.syspath_prepend(tmp_path)
    loaded: list[tuple[str, int]] = []
    monkeypatch.setattr(ctranslate2_model.ctypes, "CDLL", lambda path, mode: loaded.append((path, mode)))
    preload_cublas()
    folder = tmp_path / "nvidia" / "cublas" / "lib"
    ours = [(path, mode) for path, mode in loaded if path.startswith(str(tmp_path))]
    assert ours == [
        (str(folder / "libcublasLt.so.12"), ctypes.RTLD_GLOBAL),
        (str(folder / "libcublas.so.12"), ctypes.RTLD_GLOBAL),
    ]


def test_without_the_wheel_nothing_is_wrong_yet() -> None:
    preload_cublas()


def test_only_a_gpu_needs_cublas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(ctranslate2_model, "preload_cublas", lambda: asked.append("cublas"))
    for device in ("cpu", "cuda"):
        with pytest.raises(ArtefactError):
            open_model(tmp_path, manifest("int8"), settings(device=device))
    assert asked == ["cublas"]
