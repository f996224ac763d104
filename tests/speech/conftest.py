"""Fixtures of the speech tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.speech.service_rig import Bench, ScriptedSession
from trimodal.speech import service as module


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
        one.recognizer.go.set()
        one.service.close()
        assert one.metric("active_requests", model="speech").value == 0
    assert not [t for t in threading.enumerate() if t.name.startswith(("window-", "listener", "sweeper"))]
