"""Fixtures that several folders of tests share: doubles of the GPU libraries."""

from types import SimpleNamespace

import pytest

from tests.doubles.gpu_libraries import Recorder, install


@pytest.fixture(params=["10.14", "11.4"])
def tensorrt_double(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """TensorRT of each version: `module`, `recorder` and `version`."""
    recorder = Recorder()
    module = install(monkeypatch, f"tensorrt-{request.param}", recorder)
    return SimpleNamespace(module=module, recorder=recorder, version=request.param)


@pytest.fixture
def tensorrt_llm_double(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """TensorRT-LLM 1.2.1: `module`, `recorder` and `version`."""
    recorder = Recorder()
    module = install(monkeypatch, "tensorrt_llm-1.2", recorder)
    return SimpleNamespace(module=module, recorder=recorder, version=module.__version__)
