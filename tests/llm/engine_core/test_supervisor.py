"""What the supervisor tells of engines that die, and when it stops opening others."""

from __future__ import annotations

import itertools
import queue
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tests.llm.doubles.sinks import eventually
from trimodal.errors import OperatorError
from trimodal.llm.engine_core import supervisor as module
from trimodal.llm.engine_core.messages import Stepped
from trimodal.llm.engine_core.supervisor import (
    EngineGivenUp,
    EngineLost,
    EngineReopened,
    EngineSupervisor,
)
from trimodal.llm.engines.protocol import EngineInfo, EngineStats
from trimodal.llm.settings import LlmSettings
from trimodal.metrics import MemoryMetrics

STEP = Stepped([], EngineStats())


class PlayedClient:
    """Yields the steps that the test puts in; None is its death."""

    def __init__(self, *steps: Stepped | None, blocks: int = 64) -> None:
        self.info = EngineInfo("fake", blocks, 32, 4, 1000)
        self.steps: queue.SimpleQueue[Stepped | None] = queue.SimpleQueue()
        for step in steps:
            self.steps.put(step)
        self.closed = 0

    def receive(self) -> Stepped | None:
        return self.steps.get()

    def abandon(self) -> None:
        self.steps.put(None)

    def close(self) -> None:
        self.closed += 1
        self.steps.put(None)


class Supervised:
    """A supervisor whose clients, or failures to open one, come from a list."""

    def __init__(self, *script: Any) -> None:
        self._script = list(script)
        self.restarts = MemoryMetrics().get("restarts", {})
        self.supervisor = EngineSupervisor(LlmSettings(engine="fake"), self._start, self.restarts)
        self.events: list[Any] = []
        self._thread = threading.Thread(target=lambda: self.events.extend(self.supervisor.events()))
        self._thread.start()

    def _start(self, settings: LlmSettings) -> Any:
        client = self._script.pop(0)
        if isinstance(client, Exception):
            raise client
        return client

    def ended(self) -> list[Any]:
        self._thread.join(10)
        assert not self._thread.is_alive()
        return self.events


def test_a_lost_engine_is_replaced_and_its_successors_info_is_told() -> None:
    first, second = PlayedClient(STEP, None), PlayedClient(STEP, blocks=32)
    one = Supervised(first, second)
    eventually(lambda: second.steps.empty())
    one.supervisor.close()
    assert one.ended() == [STEP, EngineLost(), EngineReopened(second.info), STEP]
    assert one.supervisor.client.info is second.info
    assert first.closed
    assert one.restarts.value == 1


def test_a_loss_is_told_before_what_is_left_of_the_engine_is_ended() -> None:
    """To end a process that was killed, or hangs, took 11.8 s, and its clients waited as long."""
    told = threading.Event()

    class Slow(PlayedClient):
        def close(self) -> None:
            assert told.wait(10), "the loss is told only when all is ended"
            super().close()

    clients = iter([Slow(None), PlayedClient()])

    def start(settings: LlmSettings) -> Any:
        return next(clients)

    supervisor = EngineSupervisor(LlmSettings(engine="fake"), start, MemoryMetrics().get("restarts", {}))
    events = supervisor.events()
    assert next(events) == EngineLost()
    told.set()
    assert isinstance(next(events), EngineReopened)


@pytest.mark.parametrize("failure", [OperatorError("no memory"), OSError("no memory")])
def test_one_that_does_not_open_counts_as_lost(caplog: pytest.LogCaptureFixture, failure: Exception) -> None:
    one = Supervised(PlayedClient(None), failure, second := PlayedClient())
    eventually(lambda: one.supervisor.client.info is second.info)
    one.supervisor.close()
    assert one.ended() == [EngineLost(), EngineReopened(second.info)]
    assert one.restarts.value == 2
    assert "no memory" in caplog.text


def test_after_three_restarts_in_five_minutes_it_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = Supervised(*(PlayedClient(None) for _ in range(4)))
    assert [type(event) for event in one.ended()] == [EngineLost, EngineReopened] * 3 + [
        EngineLost,
        EngineGivenUp,
    ]
    assert "not started again" in caplog.text


def test_losses_of_long_ago_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    times = itertools.count(step=200)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: float(next(times))))
    clients = [PlayedClient(None) for _ in range(9)]
    one = Supervised(*clients, last := PlayedClient())
    eventually(lambda: one.supervisor.client.info is last.info)
    one.supervisor.close()
    assert not [event for event in one.ended() if isinstance(event, EngineGivenUp)]


def test_closing_is_no_loss() -> None:
    one = Supervised(PlayedClient())
    one.supervisor.close()
    assert one.ended() == []
    assert one.restarts.value == 0
