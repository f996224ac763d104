"""A speech service on scripted sessions: a window is due each second, and recognising it commits a word."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np

from trimodal.audio.values import SAMPLE_RATE, Word
from trimodal.errors import RequestError
from trimodal.metrics import MemoryMetrics
from trimodal.speech.live.metrics import SpeechMetrics
from trimodal.speech.live.request import Chunk, StreamOptions
from trimodal.speech.live.service import SpeechService
from trimodal.speech.settings import SpeechSettings
from trimodal.speech.values import Recognition, Window

BOUND = 10.0


class ScriptedSession:
    """A window for every full second; what is heard in it is committed."""

    made: list[ScriptedSession] = []

    def __init__(self, settings, *, policy, language, prompt, translate, temperature, detector) -> None:
        self.settings, self.policy, self.language, self.prompt = settings, policy, language, prompt
        self.translate, self.temperature = translate, temperature
        self.received = self.planned = self.heard = 0
        self.outstanding = self.ended = self.paused = False
        self.fresh: list[Word] = []
        ScriptedSession.made.append(self)

    received_s = property(lambda self: self.received / SAMPLE_RATE)
    speech_s = property(lambda self: self.received / SAMPLE_RATE / 2)
    pending_s = property(lambda self: self.received_s - self.heard)
    unsent_s = property(lambda self: self.pending_s)
    max_pending_s = property(lambda self: self.settings.max_pending_s)
    waiting = property(lambda self: self.outstanding or self.heard + 1 <= self.received_s)
    ends_turn = property(lambda self: self.ended)
    has_news = property(lambda self: bool(self.fresh))
    behind_s = property(lambda self: self.received_s - self.heard - 1 if self.waiting else 0.0)

    def feed(self, samples) -> None:
        if len(samples) and samples[0] == 0.625:
            raise ArithmeticError("a defect of the session")
        self.received += len(samples)

    def pause(self) -> None:
        self.paused = True

    def end(self) -> None:
        self.ended = True

    def next_windows(self, most: int):
        if self.outstanding or self.heard + 1 > self.received_s:
            return []
        self.outstanding = True
        return [SimpleNamespace(window=Window(np.zeros(8, np.float32), self.language, str(self.heard)))]

    def accept_windows(self, planned, heard) -> None:
        self.outstanding = False
        self.fresh += [word.shifted(self.heard) for word in heard[0].words]
        self.heard += 1

    def take(self):
        fresh, self.fresh = tuple(self.fresh), []
        return SimpleNamespace(
            committed=fresh, tentative=(), received_s=self.received_s, lag_s=0.0, session=self
        )


class Recogniser:
    """Says the window's prompt as its word; may be held, may fail."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.errors: list[Exception] = []
        self.gate: threading.Semaphore | None = None  # lets one call through for each release
        self.lock = threading.Lock()
        self.inside = self.most = self.calls = 0

    def __call__(self, windows: Sequence[Window]) -> list[Recognition]:
        (window,) = windows
        with self.lock:
            self.calls += 1
            self.inside += 1
            self.most = max(self.most, self.inside)
            error = self.errors.pop(0) if self.errors else None
        try:
            assert self.go.wait(BOUND)
            assert self.gate is None or self.gate.acquire(timeout=BOUND)
            if error:
                raise error
            return [Recognition((Word(f" {window.prompt}", 0.25, 0.75, 1.0),))]
        finally:
            with self.lock:
                self.inside -= 1


class Answer:
    """One request's sink; a second answer is a defect."""

    def __init__(self) -> None:
        self.update = self.error = self.final = None
        self.times = 0
        self.left = False
        self._ended = threading.Event()

    def answer(self, update, *, final: bool) -> None:
        self.update, self.final = update, final
        self.times += 1
        self._ended.set()

    def fail(self, error: RequestError) -> None:
        self.error = error
        self.times += 1
        self._ended.set()

    def is_cancelled(self) -> bool:
        return self.left

    @property
    def given(self) -> bool:
        return self._ended.is_set()

    def wait(self) -> Answer:
        assert self._ended.wait(BOUND), "no answer"
        return self

    def words(self) -> str:
        assert self.error is None, self.error
        return "".join(word.text for word in self.update.committed)


class Bench:
    """A service on scripted sessions, and how tests talk to it."""

    def __init__(self, settings: dict, idle_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.recogniser, self.metrics = Recogniser(), MemoryMetrics()
        self.service = SpeechService(
            SpeechSettings(idle_s=idle_s, **settings),
            self.recogniser,
            lambda _: None,
            SpeechMetrics(self.metrics),
            clock=clock,
        )

    def ask(self, after_s: float, stream=1) -> Answer:
        """Asks for news."""
        answer, nothing = Answer(), np.zeros(0, np.float32)
        self.service.submit(
            Chunk(stream, nothing, False, False, StreamOptions(), round(after_s * SAMPLE_RATE)), answer
        )
        return answer

    def send(self, stream=1, seconds=1.0, *, start=False, end=False, level=0.0, **options) -> Answer:
        samples = np.full(round(seconds * SAMPLE_RATE), level, np.float32)
        answer = Answer()
        self.service.submit(Chunk(stream, samples, start, end, StreamOptions(**options)), answer)
        return answer

    def metric(self, name: str, **labels: str):
        return self.metrics.get(f"trimodal_speech_{name}", labels)

    @property
    def open_streams(self) -> float:
        return self.metric("active_streams", model="speech").value

    def outcome(self, name: str) -> float:
        return self.metric("streams_total", outcome=name).value


class BrokenAnswer(Answer):
    """Its answer cannot be written; with `fails`, its error neither."""

    fails = False

    def answer(self, update, *, final: bool) -> None:
        raise MemoryError("no room for the tensor")

    def fail(self, error: RequestError) -> None:
        super().fail(error)
        if self.fails:
            raise OSError("the sender is closed")
