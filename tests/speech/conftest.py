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
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FP32 graphs of a multilingual Whisper, its checkpoint beside them; tests that change one copy it."""
    from tests.speech.engines.test_onnxruntime import export
    from tests.speech.whisper.checkpoints import LANGUAGES, write_checkpoint

    directory = tmp_path_factory.mktemp("multilingual")
    write_checkpoint(directory / "checkpoint", LANGUAGES, end_gain=1)
    (directory / "onnx").mkdir()
    return export(directory / "checkpoint", directory / "onnx", LANGUAGES)


@pytest.fixture(scope="session")
def reference(graphs: Path) -> Iterator[SpeechEngine]:
    """Those graphs in the engine onnxruntime."""
    from tests.speech.engines.test_onnxruntime import opened

    engine = opened(graphs)
    yield engine
    engine.close()


@pytest.fixture
def runs(tensorrt_double: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Any:
    """TensorRT's double that computes, one GPU, memory on the processor, of which every block is known."""
    from tests.speech.engines.tensorrt.on_onnx import TensorRTOnOnnx
    from tests.speech.engines.tensorrt.plans import H200
    from trimodal.speech.engines.tensorrt import engine as engine_tensorrt
    from trimodal.speech.engines.tensorrt.memory import Memory

    runs = TensorRTOnOnnx(tensorrt_double)
    block, open_plans = Memory.block, engine_tensorrt.open_plans

    def known(self: Memory, count: int, dtype: Any) -> Any:
        made = block(self, count, dtype)
        runs.blocks[made.data_ptr()] = made.numel() * made.element_size()
        return made

    def on_processor(*arguments: Any, device: str) -> Any:
        assert device == "cuda"
        return open_plans(*arguments, device="cpu")

    monkeypatch.setattr(Memory, "block", known)
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
