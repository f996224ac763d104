"""Fixtures of the speech tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.speech.live.rig import Bench, ScriptedSession
from trimodal.speech.engines.protocol import SpeechEngine
from trimodal.speech.live import service as module


@pytest.fixture(scope="session")
def checkpoint(one_torch_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A multilingual Whisper of random weights; tests that change it copy it."""
    from tests.speech.whisper.checkpoints import LANGUAGES, write_checkpoint

    directory = tmp_path_factory.mktemp("multilingual")
    write_checkpoint(directory, LANGUAGES, end_gain=1)
    return directory


@pytest.fixture(scope="session")
def reference(checkpoint: Path) -> Iterator[SpeechEngine]:
    """Its network in torch, decoded as the engine tensorrt does."""
    from tests.speech.engines.tensorrt.torch_forward import open_on_torch

    engine = open_on_torch(checkpoint)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def static_plans(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its network as plans of TensorRT's double; tests copy them."""
    from tests.speech.engines.tensorrt.plans import write_static

    return write_static(checkpoint, tmp_path_factory.mktemp("plans"))


@pytest.fixture
def runs(tensorrt_double: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Any:
    """TensorRT's double that computes, one GPU, memory on the processor: of each run, its tensors' alone."""
    from tests.speech.engines.tensorrt.on_onnx import TensorRTOnOnnx
    from tests.speech.engines.tensorrt.plans import H200
    from trimodal.runtimes.tensorrt_session import TensorRTSession
    from trimodal.speech.engines.tensorrt import engine as engine_tensorrt

    runs = TensorRTOnOnnx(tensorrt_double)
    run, open_plans = TensorRTSession.run, engine_tensorrt.open_plans

    def known(self: TensorRTSession, kind: Any, tensors: Any, stream: int) -> None:
        assert all(tensor.is_contiguous() for tensor in tensors.values())
        runs.blocks = {each.data_ptr(): each.numel() * each.element_size() for each in tensors.values()}
        run(self, kind, tensors, stream)

    def on_processor(*arguments: Any, device: str) -> Any:
        assert device == "cuda"
        return open_plans(*arguments, device="cpu")

    monkeypatch.setattr(TensorRTSession, "run", known)
    monkeypatch.setattr(engine_tensorrt, "open_plans", on_processor)
    monkeypatch.setattr(engine_tensorrt, "visible_gpus", lambda: [H200])
    return runs


@pytest.fixture
def bench(monkeypatch) -> Iterator[Callable[..., Bench]]:
    monkeypatch.setattr(module, "LiveSession", ScriptedSession)
    ScriptedSession.made.clear()
    benches: list[Bench] = []

    def make(idle_s: float = 60.0, clock=time.monotonic, **settings) -> Bench:
        benches.append(Bench(settings, idle_s, clock))
        return benches[-1]

    yield make
    for one in benches:
        one.recogniser.go.set()
        one.service.close()
        assert one.metric("active_requests", model="speech").value == 0
    assert not [t for t in threading.enumerate() if t.name.startswith(("window-", "listener", "sweeper"))]
