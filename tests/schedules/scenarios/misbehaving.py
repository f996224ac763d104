"""Clients, caches and an engine that misbehave by a seeded draw; what they did is counted."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import Any

from tests.cache.doubles import FakeEmbedder, ScriptedJudge, ScriptedStore, calibration
from tests.doubles import pb_utils
from tests.llm.doubles.answers import Answers
from tests.llm.doubles.sinks import Collector
from tests.schedules.play import Drawn
from trimodal.cache.answers import AnswerCache, CacheOptions
from trimodal.cache.audit.auditor import Auditor
from trimodal.cache.metrics import CacheMetrics
from trimodal.cache.stores.base import StoreError
from trimodal.cache.values import Entry, Hit, Question, Vector
from trimodal.errors import RequestError
from trimodal.llm.engines.fake import FakeEngine
from trimodal.llm.engines.protocol import EngineLost, EngineRequest, Output
from trimodal.llm.request.outputs import Delta, columns
from trimodal.llm.settings import LlmSettings
from trimodal.metrics import MemoryMetrics
from trimodal.triton.responses import ResponseStream


class DrawnStoreError(Drawn, StoreError):
    """A store's error that was drawn."""


class Client(Collector):
    """May be slow, refuse a delta, leave after some deltas or after a time; counts its ends."""

    def __init__(self, draw: random.Random, slow_s: float = 0.0) -> None:
        super().__init__()
        self.ends = 0
        self.refused: RequestError | None = None
        self.broke = False
        self._slow_s = slow_s
        self._leaves_after = draw.choice([None] * 6 + [0, 1, 7])
        self._leaves_at = time.monotonic() + draw.choice([1e9] * 6 + [0.0, 0.01, 0.05])
        self._breaks_at = draw.choice([None] * 15 + [1, 4])

    def send(self, delta: Delta) -> None:
        time.sleep(self._slow_s)
        if len(self.deltas) + 1 == self._breaks_at:
            self._breaks_at, self.broke = None, True
            raise Drawn("the client's pipe is broken")
        super().send(delta)
        self.ends += bool(delta.finish_reason)

    def fail(self, error: RequestError) -> None:
        super().fail(error)
        self.ends += 1

    def is_cancelled(self) -> bool:
        left = self._leaves_after is not None and len(self.deltas) >= self._leaves_after
        return left or time.monotonic() > self._leaves_at


class TritonClient(Client):
    """Also passes all on to the real stream of responses, over a sender that refuses what Triton does."""

    def __init__(self, draw: random.Random, slow_s: float = 0.0) -> None:
        super().__init__(draw, slow_s)
        self.sender = SlowSender(slow_s)
        self._stream = ResponseStream(pb_utils, self.sender)

    def send(self, delta: Delta) -> None:
        super().send(delta)
        self._stream.respond(columns(delta), final=bool(delta.finish_reason))

    def fail(self, error: RequestError) -> None:
        self._stream.fail(error)
        super().fail(error)

    def is_cancelled(self) -> bool:
        return self._stream.is_cancelled() or super().is_cancelled()


class SlowSender(pb_utils.ResponseSender):
    """Takes a while, during which others go on."""

    def __init__(self, slow_s: float) -> None:
        super().__init__()
        self._slow_s = slow_s

    def send(self, response: Any = None, flags: int = 0) -> None:
        time.sleep(self._slow_s)
        super().send(response, flags)

    def is_cancelled(self) -> bool:
        time.sleep(0)
        return super().is_cancelled()


class PlayedAnswers(Answers):
    """Hits, misses, waits and faults as drawn; its own lock, as it is asked on many threads."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self._draw, self._lock = draw, threading.Lock()

    def exact(self, question: Question) -> Hit | None:
        return self._find(question, super().exact(question))

    def semantic(self, question: Question) -> Hit | None:
        return self._find(question, None)

    def _find(self, question: Question, held: Hit | None) -> Hit | None:
        with self._lock:
            what, seconds = self._draw.random(), self._draw.choice([0.0, 0.001, 0.03])
            reason = self._draw.choice(["stop", "stop", "length", "", "poison"])
        time.sleep(seconds)
        if what < 0.05:
            raise Drawn("the cache is broken")
        if what < 0.15:
            entry = Entry(question.text, "Near.", reason, 2, question.max_tokens, 0, 1)
            return Hit(entry, "semantic", 0.95)
        return held if what < 0.6 else None

    def keep(self, question: Question, answer: str, finish_reason: str, completion_tokens: int) -> None:
        with self._lock:
            broken, kept = self._draw.random() < 0.1, self._draw.random() < 0.3
        if broken:
            raise Drawn("the cache is full")
        if kept:
            super().keep(question, answer, finish_reason, completion_tokens)


class SlowStore(ScriptedStore):
    """A store in memory behind calls that are slow or fail, as a store elsewhere."""

    def __init__(self, draw: random.Random, faults: float) -> None:
        super().__init__()
        self._draw, self._faults = draw, faults
        self.before = self._delay

    def _delay(self, call: str) -> None:
        time.sleep(self._draw.choice([0.0, 0.0, 0.001, 0.03, 0.2]))
        if self._draw.random() < self._faults:
            raise DrawnStoreError("as drawn")


class SlowEmbedder(FakeEmbedder):
    """Takes longer than it may now and then, and fails."""

    def __init__(self, draw: random.Random, faults: float) -> None:
        super().__init__(16)
        self._draw, self._faults = draw, faults

    def embed(self, text: str) -> Vector:
        time.sleep(self._draw.choice([0.0, 0.0, 0.001, 0.1]))
        if self._draw.random() < self._faults:
            raise Drawn("as drawn")
        return super().embed(text)


class SlowJudge(ScriptedJudge):
    """Takes longer than it may now and then, fails, and says what is no probability."""

    def __init__(self, draw: random.Random, faults: float) -> None:
        super().__init__()
        self._draw, self._faults = draw, faults

    def same(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        time.sleep(self._draw.choice([0.0, 0.0, 0.001, 0.1]))
        if self._draw.random() < self._faults:
            raise Drawn("as drawn")
        return [self._draw.choice([1.0, 0.2, float("nan")]) for _ in pairs]


class Shared:
    """Draws for several threads."""

    def __init__(self, draw: random.Random) -> None:
        self._draw, self._lock = draw, threading.Lock()

    def random(self) -> float:
        with self._lock:
            return self._draw.random()


def real_cache(draw: random.Random, metrics: MemoryMetrics, *, share: float = 0.0) -> AnswerCache:
    """The real cache on a store and models that fail and take longer than they may; `share` is audited."""
    faults = draw.choice([0.0, 0.1, 0.6]) if not share else 0.05
    options = CacheOptions("unused", budget_s=0.02, embedding_budget_s=0.05)
    store = SlowStore(random.Random(draw.random()), faults)
    embedder = SlowEmbedder(random.Random(draw.random()), faults)
    counts = CacheMetrics(metrics, "llm")
    judge, known, audits = SlowJudge(random.Random(draw.random()), faults), calibration(), None
    if share:
        audits = Auditor(
            share, metrics, "llm",
            embed=embedder.embed, same=judge.same, draw=Shared(random.Random(draw.random())).random,
        )  # fmt: skip
    models = {"same": judge.same, "calibration": known, "audits": audits}
    return AnswerCache(options, embedder.embed, counts, store=store, **models)  # type: ignore[arg-type]


class Engine(FakeEngine):
    """Now and then refuses a prompt, fails one, makes tokens that are no text, and is lost once."""

    def __init__(self, settings: LlmSettings, draw: random.Random, lives_s: float, faults: float) -> None:
        super().__init__(settings)
        self._draw, self._ends, self._faults = draw, time.monotonic() + lives_s, faults

    def add(self, request: EngineRequest) -> None:
        if self._draw.random() < self._faults:
            raise Drawn("as drawn")
        super().add(request)

    def step(self) -> list[Output]:
        if time.monotonic() > self._ends:
            raise EngineLost("as drawn")
        return [self._spoilt(output) for output in super().step()]

    def _spoilt(self, output: Output) -> Output:
        what = self._draw.random()
        if what < self._faults and not output.finish_reason:
            self.cancel(output.id)
            return Output(output.id, [], "error", error="as drawn")
        return output
