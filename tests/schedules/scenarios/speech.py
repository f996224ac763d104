"""Schedules of live speech: clients that restart, leave or send ahead, a recogniser and sinks that fail, idle
streams and unloading, on the real service over scripted sessions."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tests.schedules.play import Drawn, Scenario
from tests.schedules.world import World
from tests.speech.live.rig import ScriptedSession
from trimodal.audio.values import SAMPLE_RATE, Word
from trimodal.errors import InvalidArgument, RequestError, Unavailable
from trimodal.metrics import MemoryMetrics
from trimodal.speech.live.metrics import SpeechMetrics
from trimodal.speech.live.request import Chunk, StreamOptions
from trimodal.speech.live.service import SpeechService
from trimodal.speech.settings import SpeechSettings
from trimodal.speech.values import Recognition, Window

IDLE_S = 5.0
CLIENTS = 3


class Sink:
    """Notes what it is told, in the order of all sinks; now and then an answer cannot be written."""

    def __init__(self, told: list[Sink], draw: random.Random) -> None:
        self._told, self._draw = told, draw
        self.outcomes: list[str] = []
        self.update: Any = None

    def answer(self, update: Any, *, final: bool) -> None:
        time.sleep(0.0)
        if self._draw.random() < 0.03:
            raise Drawn("no room for the tensor")
        self.update = update
        self.outcomes.append("answer")
        self._told.append(self)

    def fail(self, error: RequestError) -> None:
        time.sleep(0.0)
        self.outcomes.append(type(error).__name__)
        self._told.append(self)

    def is_cancelled(self) -> bool:
        return self._draw.random() < 0.05


class DrawnSession(ScriptedSession):
    """Meets a defect when it is fed a certain level."""

    def feed(self, samples: Any) -> None:
        if len(samples) and samples[0] == 0.625:
            raise Drawn("a defect of the session")
        super().feed(samples)


class Speech(Scenario):
    """Clients, each with a stream at a time, on one service that is unloaded at the end or in the middle."""

    stall_s = 2 * IDLE_S
    comes_to = (
        *("answer", "InternalError", "Unavailable", "InvalidArgument", "Cancelled"),
        *("stream finished", "stream failed", "stream idle", "stream restarted", "stream left"),
    )
    switching: ClassVar[tuple[str, ...]] = tuple(
        f"trimodal.speech.live.{name}" for name in ("service", "stream", "table", "windows")
    )

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.metrics = MemoryMetrics()
        self.sinks: list[Sink] = []
        self.told: list[Sink] = []
        self.service = Service(
            SpeechSettings(max_windows_in_flight=2, max_pending_s=5, refuse_lag_s=100, idle_s=IDLE_S),
            self._recognise,
            lambda: None,  # type: ignore[arg-type, return-value]
            SpeechMetrics(self.metrics),
            clock=time.monotonic,
        )

    def _recognise(self, windows: Sequence[Window]) -> list[Recognition]:
        (window,) = windows
        time.sleep(self.draw.choice([0.0, 0.0, 0.1, 1.0]))
        chance = self.draw.random()
        if chance < 0.15:
            raise Unavailable("no room")
        if chance < 0.18:
            raise InvalidArgument("language: 'xx'")
        if chance < 0.20:
            raise Drawn("defect")
        return [Recognition((Word(f" {window.prompt}", 0.25, 0.75, 1.0),))]

    def run(self) -> None:
        clients = [threading.Thread(target=self._talk_all, name=f"client-{n}") for n in range(CLIENTS)]
        for thread in clients:
            thread.start()
        if self.draw.random() < 0.3:
            time.sleep(self.draw.choice([0.0, 0.01, 1.0, 8.0]))
            self.service.close()
        for thread in clients:
            thread.join()
        self.service.close()
        # It waits for its threads for a while; the clock may have jumped over that.
        self.world.settle(lambda: not self.world.others(), 60.0)

    def _talk_all(self) -> None:
        for _ in range(3):
            self._talk(number=self.draw.choice((1, 2)))

    def _talk(self, number: int) -> None:
        """One stream: chunks and requests for news, also ahead of answers; ended, left, or refused."""
        draw, started = self.draw, True
        for _ in range(draw.randint(1, 4)):
            sink = Sink(self.told, draw)
            self.sinks.append(sink)
            seconds = draw.choice((0.0, 0.5, 1.0, 3.0, 8.0))
            level = 0.625 if draw.random() < 0.02 else 0.0
            end = draw.random() < 0.3
            if draw.random() < 0.05:
                error = InvalidArgument("audio: NaN")
                self.service.refuse(sink, error, ended=number if end else None)
            elif draw.random() < 0.2 and not (started or end):
                after = draw.choice((0, SAMPLE_RATE, 100 * SAMPLE_RATE))
                nothing = np.zeros(0, np.float32)
                self.service.submit(Chunk(number, nothing, False, False, StreamOptions(), after), sink)
            else:
                samples = np.full(round(seconds * SAMPLE_RATE), level, np.float32)
                self.service.submit(Chunk(number, samples, started, end, StreamOptions()), sink)
            started = False
            if draw.random() < 0.5:
                self.world.wait(lambda sink=sink: bool(sink.outcomes), 2.0)  # type: ignore[misc]
            if end:
                return
        if draw.random() < 0.3:
            time.sleep(2 * IDLE_S)

    def check(self) -> None:
        for sink in self.sinks:
            assert len(sink.outcomes) == 1, f"a request was answered by {sink.outcomes}"
            self.seen[sink.outcomes[0]] += 1
        sessions = {id(sink.update.session): sink.update.session for sink in self.told if sink.update}
        for session in sessions.values():
            updates = [sink.update for sink in self.told if sink.update and sink.update.session is session]
            received = [update.received_s for update in updates]
            assert received == sorted(received), "an answer overtook the one before"
            words = [word.text for update in updates for word in update.committed]
            assert words == [f" {at}" for at in range(len(words))], "words were lost or told twice"
        for name in ("active_streams", "active_requests", "windows_in_flight"):
            value = self.metrics.get(f"trimodal_speech_{name}", {"model": "speech"}).value
            assert value == 0, f"{name} is {value:g} at the end"
        table = self.service._table
        assert (table._open, len(table._ending)) == ({}, 0)
        for outcome in ("finished", "failed", "idle", "restarted", "left", "refused"):
            count = self.metrics.get("trimodal_speech_streams_total", {"outcome": outcome}).value
            self.seen[f"stream {outcome}"] += int(count)


class Service(SpeechService):
    """The real one, on scripted sessions."""

    def _session(self, options: StreamOptions, settings: SpeechSettings) -> Any:
        drawn = {"policy": "", "language": "", "prompt": "", "translate": False, "temperature": 0.0}
        return DrawnSession(settings, **drawn, detector=None)
