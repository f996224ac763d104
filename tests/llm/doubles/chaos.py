"""Clients, a cache and an engine that all misbehave by a seeded draw; what they did is counted."""

from __future__ import annotations

import random
import threading
import time

from tests.cache.doubles import FakeEmbedder, ScriptedGuard, ScriptedStore
from tests.llm.doubles.answers import Answers
from tests.llm.doubles.sinks import Collector
from trimodal.cache.answers import AnswerCache
from trimodal.cache.metrics import CacheMetrics
from trimodal.cache.options import CacheOptions
from trimodal.cache.stores.base import StoreError
from trimodal.cache.values import Entry, Hit, Question, Vector
from trimodal.errors import RequestError
from trimodal.llm.engines.fake import FakeEngine
from trimodal.llm.engines.protocol import EngineLost, Output, Sampling
from trimodal.llm.request.outputs import Delta
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.request.terms import Terms
from trimodal.llm.settings import LlmSettings
from trimodal.metrics import MemoryMetrics

TIERS = """
[tier.standard]
[tier.premium]
priority = 10
ttft_deadline_ms = 400
deadline_ms = 1500
itl_bound_ms = 50
[tier.batch]
priority = -10
kv_share = 0.4
max_output_tokens = 150
"""


class ChaosClient(Collector):
    """May be slow, refuse a delta, leave after some deltas or after a time; counts its ends."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.ends = 0
        self.refused: RequestError | None = None
        self._slow_s = draw.choice([0.0] * 8 + [0.02])
        self._leaves_after = draw.choice([None] * 6 + [0, 1, 7])
        self._leaves_at = time.monotonic() + draw.choice([1e9] * 6 + [0.0, 0.02, 0.2])
        self._breaks_at = draw.choice([None] * 15 + [1, 4])

    def send(self, delta: Delta) -> None:
        time.sleep(self._slow_s)
        if len(self.deltas) + 1 == self._breaks_at:
            self._breaks_at = None
            raise RuntimeError("the client's pipe is broken")
        super().send(delta)
        self.ends += bool(delta.finish_reason)

    def fail(self, error: RequestError) -> None:
        super().fail(error)
        self.ends += 1

    def is_cancelled(self) -> bool:
        left = self._leaves_after is not None and len(self.deltas) >= self._leaves_after
        return left or time.monotonic() > self._leaves_at


class ChaosAnswers(Answers):
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
            raise RuntimeError("the cache is broken")
        if what < 0.15:
            entry = Entry(question.text, "Near.", reason, 2, question.max_tokens, 0, 1)
            return Hit(entry, "semantic", 0.95)
        return held if what < 0.6 else None

    def keep(self, question: Question, answer: str, finish_reason: str, completion_tokens: int) -> None:
        with self._lock:
            broken, kept = self._draw.random() < 0.1, self._draw.random() < 0.3
        if broken:
            raise RuntimeError("the cache is full")
        if kept:
            super().keep(question, answer, finish_reason, completion_tokens)


def chaos_cache(draw: random.Random) -> AnswerCache:
    """The real cache on a store and an embedding model that fail and take longer than they may."""
    store = ScriptedStore()

    def before(call: str) -> None:
        time.sleep(draw.choice([0.0, 0.0, 0.001, 0.03, 0.2]))
        if draw.random() < 0.1:
            raise StoreError("as drawn")

    class Embedder(FakeEmbedder):
        def embed(self, text: str) -> Vector:
            time.sleep(draw.choice([0.0, 0.0, 0.001, 0.1]))
            if draw.random() < 0.1:
                raise RuntimeError("as drawn")
            return super().embed(text)

    store.before = before
    counts = CacheMetrics(MemoryMetrics(), "llm")
    options = CacheOptions("semantic", "unused", budget_s=0.02, embedding_budget_s=0.05)
    return AnswerCache(options, Embedder(), counts, store=store, guard=ScriptedGuard(), threshold=0.9)


class ChaosEngine(FakeEngine):
    """Now and then refuses a prompt, fails one, makes tokens that are no text, and is lost once."""

    def __init__(self, settings: LlmSettings, draw: random.Random, lives_s: float) -> None:
        super().__init__(settings)
        self._draw, self._ends = draw, time.monotonic() + lives_s

    def step(self) -> list[Output]:
        if time.monotonic() > self._ends:
            raise EngineLost("as drawn")
        return [self._spoilt(output) for output in super().step()]

    def _spoilt(self, output: Output) -> Output:
        what = self._draw.random()
        if what < 0.001 and not output.finish_reason:
            return Output(output.id, [-1], None)
        if what < 0.002 and not output.finish_reason:
            self.cancel(output.id)
            return Output(output.id, [], "error", error="as drawn")
        return output


def request_of(draw: random.Random, keys: list[str]) -> GenerationRequest:
    """One of a few prompts on drawn terms; its cancel key, if any, is put into `keys`."""
    key = ""
    if draw.random() < 0.3:
        fresh = not keys or draw.random() < 0.8
        key = f"{draw.getrandbits(64):016x}" if fresh else draw.choice(keys)
        keys.append(key)
    control = draw.choice([(), (), (), ("no-cache",), ("no-store",), ("store",), ("no-cache", "no-store")])
    terms = Terms(
        tenant=draw.choice(["", "", "acme"]),
        tier=draw.choice(["", "standard", "premium", "batch"]),
        priority=draw.choice([None, None, -20]),
        ttft_deadline_ms=draw.choice([None, None, None, 30, 300]),
        deadline_ms=draw.choice([None, None, None, 20, 200]),
        cache_control=frozenset(control),
        cancel_key=key,
    )
    sampling = Sampling(draw.choice([1, 5, 40, 140, 200]), temperature=draw.choice([0.0, 0.0, 0.0, 0.7]))
    stops = draw.choice([(), (), ("fox",), ("😀",)])
    if draw.random() < 0.3:
        turns = tuple({"role": "user", "content": draw.choice(["hi", "hello " * 30])} for _ in range(3))
        return GenerationRequest(None, turns, sampling, stops, terms=terms)
    prompt = draw.choice(["hello", "hello ", "again", "long " * 60, "x" * 900, f"p{draw.random()}"])
    return GenerationRequest(prompt, None, sampling, stops, terms=terms)
