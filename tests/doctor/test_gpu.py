from __future__ import annotations

import dataclasses
import shutil

import pytest

from tests.runtimes.test_gpu_libraries import distribution, site  # noqa: F401  a fixture
from tests.server.artefacts import H200, L4, PLAN, add_model, python_model
from trimodal.doctor.gpu import check_gpus, cuda_needs, find_gpus
from trimodal.errors import ServerError
from trimodal.repository import read_model
from trimodal.runtimes import gpu_libraries
from trimodal.server import preflight

GTX = dataclasses.replace(H200, name="NVIDIA GeForce GTX 1080", sm="6.1")


@pytest.fixture
def model(tmp_path):
    def make(config):
        version = add_model(tmp_path, config)
        return read_model(tmp_path, version.parent.name, "cuda")

    return make


@pytest.fixture
def on_cuda_13(model, monkeypatch):
    """A model whose library is built for CUDA 13."""
    monkeypatch.setattr(gpu_libraries, "cuda_of", lambda name, python="": 13)
    return model(python_model("embedding", engine="onnxruntime", device="cuda", artefact="onnx-fp16"))


def driver(version: str, serves, model, monkeypatch):
    """The line about a driver of this version, whose libcuda serves this CUDA."""
    monkeypatch.setattr(gpu_libraries, "driver_cuda", lambda: serves)
    gpu = dataclasses.replace(H200, driver=version)
    return next(check_gpus([gpu], [model], {}))


def test_a_profile_without_gpus_asks_nobody(model, monkeypatch):
    monkeypatch.setattr(preflight, "visible_gpus", lambda: pytest.fail("asked"))
    found = find_gpus([model(python_model("embedding", engine="onnxruntime", device="cpu"))])
    assert (found, list(check_gpus(found, [], {}))) == ([], [])


def test_no_driver_is_one_line_with_what_to_do(on_cuda_13, monkeypatch):
    def none():
        raise ServerError("no NVIDIA driver answers (NVML): install one")

    monkeypatch.setattr(preflight, "visible_gpus", none)
    found = find_gpus([on_cuda_13])
    (check,) = check_gpus(found, [on_cuda_13], {})
    assert (check.place.name, check.severity) == ("driver", "error")
    assert check.sentence == "embedding wants a GPU, but no NVIDIA driver answers (NVML)"
    assert check.remedy == "install one; --profile cpu needs none"


@pytest.mark.parametrize(
    ("version", "serves", "level"),
    [
        ("580.65.06", (13, 0), "ok"),
        ("615.10", (13, 4), "ok"),
        ("580.65.06", None, "ok"),
        ("570.86.15", (12, 8), "error"),
        ("570.86.15", None, "error"),
        ("535.161.08", (13, 0), "ok"),  # libcuda of the forward compatibility package
    ],
)
def test_the_least_driver_for_cuda_13(on_cuda_13, monkeypatch, version, serves, level):
    check = driver(version, serves, on_cuda_13, monkeypatch)
    assert check.severity == level
    assert "onnxruntime-gpu is built for CUDA 13, which needs 580" in check.sentence
    if level == "error":
        assert check.remedy.startswith("install driver 580 or newer; data centre GPUs can use")


@pytest.mark.parametrize(("version", "level"), [("525.60.13", "ok"), ("520.61.05", "error")])
def test_the_least_driver_for_cuda_12(model, monkeypatch, version, level):
    whisper = model(python_model("speech_recognize", engine="ctranslate2", device="cuda", artefact="a"))
    check = driver(version, (12, 0) if level == "ok" else (11, 8), whisper, monkeypatch)
    assert (check.severity, "ctranslate2 is built for CUDA 12" in check.sentence) == (level, True)


def test_gpus(on_cuda_13, monkeypatch):
    monkeypatch.setattr(gpu_libraries, "driver_cuda", lambda: (13, 0))
    busy = dataclasses.replace(H200, index=1, free=30 << 30)
    _, first, second, third, _ = check_gpus([H200, busy, dataclasses.replace(GTX, index=2)], [on_cuda_13], {})
    assert (first.place.name, first.severity) == ("GPU 0", "ok")
    assert first.sentence == "NVIDIA H200, SM 9.0, 140 GiB of 141 GiB are free"
    assert (second.severity, "nvidia-smi" in second.remedy) == ("warning", True)
    assert (third.severity, third.remedy[:32]) == ("error", "CUDA 13 serves SM 7.5 and newer:")


def test_engines_must_fit_into_what_is_free(on_cuda_13, monkeypatch):
    monkeypatch.setattr(gpu_libraries, "driver_cuda", lambda: (13, 0))
    *_, fits = check_gpus([H200], [on_cuda_13], {"embedding": 16 << 30})
    *_, large = check_gpus([H200], [on_cuda_13], {"embedding": 141 << 30})
    assert (fits.severity, large.severity) == ("ok", "error")
    assert "trimodal plan llm" in large.remedy


def test_the_shares_of_all_models_are_added_up(model, monkeypatch):
    monkeypatch.setattr(gpu_libraries, "driver_cuda", lambda: (13, 0))

    def memory(share, free=22 << 30):
        llm = python_model("llm", engine="vllm", artefact="checkpoint", gpu_memory_utilization=share)
        models = [model(llm), *others]
        weights = {"llm": 15 << 30, "embedding": 1 << 30, "speech_recognize": 2 << 30}
        *_, check = check_gpus([dataclasses.replace(L4, free=free)], models, weights)
        shutil.rmtree(models[0].directory)
        return check

    others = [
        model(python_model(name, engine=engine, device="cuda", artefact="a"))
        for name, engine in (("embedding", "onnxruntime"), ("speech_recognize", "ctranslate2"))
    ]
    fits = memory("0")
    assert (fits.severity, fits.place.name) == ("ok", "memory")
    assert "embedding 2.0 GiB, llm 16 GiB, speech_recognize 3.0 GiB: 21 GiB together" in fits.sentence
    assert memory("0", free=20 << 30).sentence.endswith("and GPU 0 has 20 GiB free")
    too_much = memory("0.9")
    assert (too_much.severity, "llm 22 GiB" in too_much.sentence) == ("error", True)
    assert too_much.sentence.endswith("27 GiB together, and GPU 0 has 24 GiB")
    assert too_much.remedy.startswith("lower gpu_memory_utilization (0: what the others leave)")


def test_each_instance_has_its_own_copy_of_the_weights(model, monkeypatch):
    monkeypatch.setattr(gpu_libraries, "driver_cuda", lambda: (13, 0))
    whisper = python_model("speech_recognize", engine="tensorrt", artefact="tensorrt-fp16")
    two = model(f"{whisper}\ninstance_group [ {{ count: 2 kind: KIND_CPU }} ]\n")
    *_, check = check_gpus(
        [H200], [two, model(PLAN)], {"speech_recognize": 2 << 30, "vision_classify": 1 << 30}
    )
    assert "speech_recognize 6.0 GiB, vision_classify 2.0 GiB: 8.0 GiB together" in check.sentence


@pytest.mark.parametrize(
    ("name", "version", "sm", "code"),
    [
        ("onnxruntime-gpu", "1.31.1", "9.0", "ready"),
        ("onnxruntime-gpu", "1.31.1", "8.7", "ready"),
        ("onnxruntime-gpu", "1.31.1", "10.0", "none"),
        ("onnxruntime-gpu", "1.31.1", "12.1", "ready"),
        ("onnxruntime-gpu", "1.32.0", "10.0", "unknown"),
        ("ctranslate2", "4.8.5", "8.9", "ready"),
        ("ctranslate2", "4.8.5", "9.0", "compiled"),
        ("ctranslate2", "4.8.5", "10.0", "compiled"),
        ("ctranslate2", "4.8.5", "5.0", "none"),
        ("torch", "2.13.0", "9.0", "unknown"),
    ],
)
def test_machine_code_of_wheels(name, version, sm, code):
    assert gpu_libraries.has_code(name, version, sm) == code


def test_wheels_without_code_for_a_gpu_are_named(model, site, monkeypatch):  # noqa: F811
    monkeypatch.setattr(gpu_libraries, "driver_cuda", lambda: (13, 0))
    for name in ("CUDA_CACHE_PATH", "CUDA_CACHE_MAXSIZE"):
        monkeypatch.delenv(name, raising=False)
    distribution(site, "onnxruntime-gpu", "1.31.1", "numpy")
    distribution(site, "ctranslate2", "4.8.5", "numpy")
    models = [
        model(python_model("embedding", engine="onnxruntime", device="cuda", artefact="a")),
        model(python_model("speech_recognize", engine="ctranslate2", device="cuda", artefact="a")),
    ]

    def named(sm):
        checks = check_gpus([dataclasses.replace(H200, sm=sm)], models, {})
        return {check.place.name: check for check in checks if " for SM " in check.place.name}

    b200 = named("10.0")
    assert b200["onnxruntime-gpu for SM 10.0"].severity == "error"
    assert "no kernel image" in b200["onnxruntime-gpu for SM 10.0"].sentence
    assert list(named("9.0")) == ["ctranslate2 for SM 9.0"]
    slow = named("9.0")["ctranslate2 for SM 9.0"]
    assert (slow.severity, "CUDA_CACHE_MAXSIZE=4294967296" in slow.remedy) == ("warning", True)
    monkeypatch.setenv("CUDA_CACHE_PATH", "/cache")
    monkeypatch.setenv("CUDA_CACHE_MAXSIZE", "4294967296")
    assert named("9.0")["ctranslate2 for SM 9.0"].severity == "ok"
    assert named("8.6") == {}


def test_who_asks_for_which_cuda(model, site, monkeypatch):  # noqa: F811
    distribution(site, "onnxruntime-gpu", "1.31.1", 'nvidia-cuda-runtime~=13.0; extra == "cuda"')
    distribution(site, "tensorrt", "10.14.1.48", "tensorrt_cu12==10.14.1.48")
    distribution(site, "torch", "2.13.0", "nvidia-cudnn-cu13==9.17.0.29; platform_system == 'Linux'")
    monkeypatch.setenv("CUDA_VERSION", "13.0.2.006")
    models = [
        model(python_model("embedding", engine="onnxruntime", device="cuda")),
        model(python_model("vision_rank", engine="onnxruntime", device="cpu")),
        model(python_model("speech_recognize", engine="tensorrt")),
        model(PLAN),
    ]
    needs = {"onnxruntime-gpu": 13, "tensorrt": 12, "torch": 13, "Triton's tensorrt backend": 13}
    assert cuda_needs(models) == needs
    monkeypatch.delenv("CUDA_VERSION")
    assert "Triton's tensorrt backend" not in cuda_needs(models)
