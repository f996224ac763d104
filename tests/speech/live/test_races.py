"""Every request is answered exactly once in whatever order the threads run: clients that restart, leave or
send ahead, a recogniser and sinks that fail, idle streams and unloading, in orders that a seed decides.

A seed that fails here fails again: `play(Schedule(seed), monkeypatch)`.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict

import numpy as np
import pytest

from tests.speech.live.rig import ScriptedSession
from tests.speech.live.schedule import Schedule
from trimodal.audio.values import SAMPLE_RATE, Word
from trimodal.errors import InvalidArgument, Unavailable
from trimodal.metrics import MemoryMetrics
from trimodal.speech.live import service, stream, table
from trimodal.speech.live.metrics import SpeechMetrics
from trimodal.speech.live.request import Chunk, StreamOptions
from trimodal.speech.settings import SpeechSettings
from trimodal.speech.values import Recognition

IDLE_S = 5.0
FEW, SEEDS = 60, int(os.environ.get("TRIMODAL_TEST_SEEDS", "250"))


class Sink:
    """Notes what it is told, in the order of all sinks; now and then an answer cannot be written."""

    def __init__(self, schedule: Schedule, told: list[Sink], label: str) -> None:
        self.schedule, self.told, self.label = schedule, told, label
        self.outcomes: list[str] = []
        self.update = self.error = None

    def answer(self, update, *, final: bool) -> None:
        self.schedule.pause()
        if self.schedule.random.random() < 0.03:
            raise MemoryError("no room for the tensor")
        self.update = update
        self.outcomes.append("answer")
        self.told.append(self)

    def fail(self, error) -> None:
        self.schedule.pause()
        self.error = error
        self.outcomes.append(type(error).__name__)
        self.told.append(self)


class Play:
    """Clients, each with a stream at a time, on one service."""

    def __init__(self, schedule: Schedule, **settings) -> None:
        self.schedule, self.random = schedule, schedule.random
        self.metrics = MemoryMetrics()
        self.sinks: list[Sink] = []
        self.told: list[Sink] = []
        self.clients_left = 3
        self.service = service.SpeechService(
            SpeechSettings(
                max_windows_in_flight=2, max_pending_s=5, refuse_lag_s=100, idle_s=IDLE_S, **settings
            ),
            self.recognise,
            lambda: None,
            SpeechMetrics(self.metrics),
            clock=lambda: schedule.now,
        )
        for number in range(self.clients_left):
            schedule.spawn(f"client-{number}", self.client)
        schedule.spawn("unload", self.unload)

    def recognise(self, window) -> Recognition:
        self.schedule.pause()
        chance = self.random.random()
        if chance < 0.15:
            raise Unavailable("no room")
        if chance < 0.18:
            raise InvalidArgument("language: 'xx'")
        if chance < 0.20:
            raise RuntimeError("defect")
        return Recognition((Word(f" {window.prompt}", 0.25, 0.75, 1.0),))

    def client(self) -> None:
        for _ in range(4):
            self.talk(number=self.random.choice((1, 2)))
        self.clients_left -= 1

    def talk(self, number: int) -> None:
        """One stream: chunks one after the other or ahead of the answers; ended, left, or refused."""
        random_, started = self.random, True
        for _ in range(random_.randint(1, 4)):
            sink = self.sink(f"{number}")
            seconds = random_.choice((0.0, 0.5, 1.0, 3.0, 8.0))
            level = 0.625 if random_.random() < 0.02 else 0.0  # a defect of the session
            end = random_.random() < 0.3
            if random_.random() < 0.05:
                self.service.refuse(sink, InvalidArgument("audio: NaN"), ended=number if end else None)
            else:
                samples = np.full(round(seconds * SAMPLE_RATE), level, np.float32)
                self.service.submit(Chunk(number, samples, started, end, StreamOptions()), sink)
            started = False
            if random_.random() < 0.5:
                self.schedule.pause(lambda sink=sink: bool(sink.outcomes), timeout=2.0)
            if end:
                return
        if random_.random() < 0.3:
            self.schedule.pause(lambda: False, timeout=2 * IDLE_S)

    def unload(self) -> None:
        early = self.random.random() < 0.3
        self.schedule.pause(lambda: early or not self.clients_left)
        self.service.close()

    def sink(self, label: str) -> Sink:
        self.sinks.append(Sink(self.schedule, self.told, label))
        return self.sinks[-1]

    def gauge(self, name: str) -> float:
        return self.metrics.get(f"trimodal_speech_{name}", {"model": "speech"}).value


def play(schedule: Schedule, monkeypatch: pytest.MonkeyPatch, **settings) -> Play:
    """One run to its end, checked."""
    doubles = schedule.doubles
    for module in (service, stream, table):
        monkeypatch.setattr(module, "threading", doubles)
    monkeypatch.setattr(service, "SimpleQueue", doubles.SimpleQueue)
    monkeypatch.setattr(service, "LiveSession", ScriptedSession)
    ScriptedSession.made.clear()
    run = Play(schedule, **settings)
    schedule.run()
    for sink in run.sinks:
        assert len(sink.outcomes) == 1, (sink.label, sink.outcomes)
    for session in ScriptedSession.made:
        updates = [sink.update for sink in run.told if sink.update and sink.update.session is session]
        received = [update.received_s for update in updates]
        assert received == sorted(received), "an answer overtook the one before"
        words = [word.text for update in updates for word in update.committed]
        assert words == [f" {at}" for at in range(len(words))], "words were lost or told twice"
    assert [run.gauge(name) for name in ("active_streams", "active_requests", "windows_in_flight")] == [0] * 3
    return run


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize(
    "seeds", [range(FEW), pytest.param(range(FEW, SEEDS), marks=pytest.mark.slow)], ids=["few", "the rest"]
)
def test_every_request_is_answered_once(monkeypatch, seeds):
    seen: dict[str, int] = defaultdict(int)
    for seed in seeds:
        try:
            run = play(Schedule(seed), monkeypatch)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        for sink in run.sinks:
            seen[sink.outcomes[0]] += 1
        for outcome in ("finished", "failed", "idle", "restarted"):
            seen[outcome] += int(run.metrics.get("trimodal_speech_streams_total", {"outcome": outcome}).value)
    # What is meant to happen does: else the orders would prove nothing.
    for what in ("answer", "InternalError", "Unavailable", "InvalidArgument", "Cancelled"):
        assert seen[what], what
    for outcome in ("finished", "failed", "idle", "restarted"):
        assert seen[outcome], outcome


def test_a_seed_is_one_order(monkeypatch):
    first, again = (play(Schedule(11), monkeypatch) for _ in range(2))
    assert [sink.outcomes for sink in first.sinks] == [sink.outcomes for sink in again.sinks]
    assert [first.sinks.index(sink) for sink in first.told] == [
        again.sinks.index(sink) for sink in again.told
    ]
