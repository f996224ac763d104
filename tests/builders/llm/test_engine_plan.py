"""What is refused before TensorRT-LLM is imported: options, machines, versions, disks."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.builders.engine_builds import GIB, Build, gpu, sentence
from tests.doubles.gpu_libraries import Recorder
from trimodal.errors import ServerError

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize(
    ("here", "options", "expected"),
    [
        ({}, ("--precision", "fp8"), "--precision fp8 --kv-precision auto needs --calibration"),
        ({}, ("--calibration", "texts"), "--precision fp16 --kv-precision auto uses no --calibration"),
        (
            {},
            ("--precision", "int8-wo", "--kv-precision", "int8"),
            "beside --precision int8-wo: auto it does",
        ),
        ({}, ("--precision", "fp8", "--kv-precision", "int8"), "beside --precision fp8: auto or fp8 it does"),
        ({}, ("--tp", "3"), "--tp 3 does not divide the 4 attention heads"),
        ({}, ("--pp", "4"), "--pp 4 does not divide the 2 layers"),
        ({}, ("--max-num-tokens", "8"), "--max-num-tokens 8 is below --max-batch-size 256"),
        ({}, ("--max-seq-len", "1024"), "the model knows 512 positions, less than 1024"),
        ({}, ("--tp", "2", "--pp", "2"), "--tp 2 --pp 2 takes 4 GPUs, and 2 can be seen"),
        ({}, ("--name", "a/b"), "not a plain directory name"),
        ({}, ("--speculation", "lookahead", "--lookahead", "4,3"), "window,ngram,verification is needed"),
        ({}, ("--speculation", "lookahead", "--lookahead", "4,1,4"), "n-grams of 2"),
        ({}, ("--speculation", "medusa"), "needs --draft: the directory"),
        ({}, ("--draft", "."), "--speculation none has none"),
        ({"gpus": ServerError("no NVIDIA driver answers (x): install one")}, (), "no NVIDIA driver answers"),
        ({"gpus": []}, (), "takes 1 GPUs, and none can be seen"),
        ({"gpus": [gpu(0), gpu(1, sm="8.0")]}, ("--tp", "2"), "one engine needs GPUs of one SM"),
        (
            {"gpus": [gpu(0, sm="8.0")]},
            ("--kv-precision", "fp8", "--calibration", "texts"),
            "has no FP8: it begins with",
        ),
        ({"gpus": [gpu(0, memory=GIB)]}, (), "weights and activations take"),
        ({"gpus": [gpu(0, free=GIB // 2)]}, (), "GPU 0 has 0.5 GiB free of 80.0"),
        ({"version": None}, (), "TensorRT-LLM is not installed here"),
        (
            {"version": "1.3.0"},
            (),
            "later releases have no engines (put the checkpoint in place with build/llm_place.py",
        ),
        ({"version": "1.1.0"}, (), "TensorRT-LLM 1.1.0 is here, and engines are built with 1.2.x"),
    ],
)
def test_what_cannot_be_built_is_one_sentence_before_anything_heavy(
    build_engine: Build,
    machine: SimpleNamespace,
    llama: Path,
    recorder: Recorder,
    texts: Path,
    here: dict[str, Any],
    options: tuple[str, ...],
    expected: str,
) -> None:
    vars(machine).update(here)
    given = [texts if each == "texts" else each for each in options]
    assert expected in sentence(build_engine(llama, *given))
    assert recorder.calls == []


def test_a_full_disk_is_one_sentence(
    build_engine: Build, llama: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(free=100)
    monkeypatch.setattr(
        importlib.import_module("steps.llm.engine_plan").shutil, "disk_usage", lambda _: usage
    )
    assert "0 GiB free, and the build takes about" in sentence(build_engine(llama))
    assert recorder.calls == []
