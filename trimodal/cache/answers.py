"""Finds stored answers before they are generated, and keeps new ones, each within its time budget.

A lookup never raises: what is slow, down or damaged is a miss with a counter.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trimodal.cache.audit.auditor import Auditor
from trimodal.cache.bounded_calls import Bypassed, DaemonThreads, Guarded, TimedCalls
from trimodal.cache.calibration import Calibration
from trimodal.cache.decision import Decider
from trimodal.cache.embedder import QuestionVectors
from trimodal.cache.metrics import CacheMetrics
from trimodal.cache.stores.base import Limits, Store, open_store
from trimodal.cache.values import Embed, Entry, Hit, Question, Same
from trimodal.cache.write_behind import DIGEST, WriteBehind
from trimodal.errors import InvalidArgument

CANDIDATES = 4
"""Nearest answers that are asked of the store: some may be too long, or cut."""
MAX_CHARACTERS = 2_000
"""A longer question has no semantic layer: an embedding of its beginning says too little of it."""
_THREADS = 8
_CALLERS = _THREADS - 2
"""Threads that may call one model at once. Were all stuck in it, the exact layer would stop too."""
_MAX_LOOKUPS = 64
"""More at once are not looked up: they would wait for a thread longer than the engine might take."""


@dataclass(frozen=True)
class CacheOptions:
    """Options of an `AnswerCache`, whose limits `LlmSettings` has checked.

    Attributes:
        store: a file's path or a URL, see `open_store`.
        budget_s: how long a request waits for the store, seconds; then it goes past it.
        embedding_budget_s: how long it waits for its embedding, before the store is asked for what is near.
        judge_budget_s: how long it then waits for the judge.
        ttls: namespace → seconds that its answers live; the first is that of requests which name none.
        max_entries: answers in the store; the oldest go first.
        max_answer_bytes: a longer answer, in UTF-8, is not kept.
        max_false_hit: upper bound of wrong answers among near-identical questions, 0 to 1.
    """

    store: str
    budget_s: float = 0.02
    embedding_budget_s: float = 0.05
    judge_budget_s: float = 0.05
    ttls: Mapping[str, float] | None = None
    max_entries: int = 20_000
    max_answer_bytes: int = 65_536
    max_false_hit: float = 0.01

    def ttl(self, namespace: str) -> float:
        """Seconds that answers of `namespace` live; an unknown one counts as the default."""
        ttls = self.ttls or {"default": 900.0}
        return ttls.get(namespace, next(iter(ttls.values())))


class AnswerCache:
    """Both layers over one store. Its methods are called from several threads at once.

    Args:
        embed, same, calibration: of the semantic layer; None: there is none.
        store: another one than `options.store` names.
        audits: of the semantic layer, closed with the cache; None: nothing is audited.

    Raises:
        OperatorError: the store cannot be used, or no threshold keeps `max_false_hit` with this judge.
    """

    def __init__(
        self,
        options: CacheOptions,
        embed: Embed | None,
        metrics: CacheMetrics,
        *,
        same: Same | None = None,
        calibration: Calibration | None = None,
        store: Store | None = None,
        audits: Auditor | None = None,
    ) -> None:
        self._options, self.metrics, self.audits = options, metrics, audits
        self.threads = DaemonThreads(_THREADS, "llm-lookup", _MAX_LOOKUPS)
        self._vectors: QuestionVectors | None = None
        self._decider: Decider | None = None
        if embed and same and calibration:
            self._vectors = QuestionVectors(embed, self.threads, _CALLERS, options.embedding_budget_s)
            self._decider = Decider(
                same,
                calibration,
                calibration.threshold(options.max_false_hit),
                metrics,
                callers=_CALLERS,
                budget_s=options.judge_budget_s,
            )
        limits = Limits(options.max_entries, options.budget_s)
        self._store = open_store(options.store, limits) if store is None else store
        self._at_store = Guarded("the cache's store", _THREADS)
        self._writer = WriteBehind(self._store, self._vectors, metrics, self._at_store.breaker)

    @property
    def embeds(self) -> bool:
        """Whether there is a semantic layer."""
        return self._vectors is not None

    def lookup(self, question: Question) -> AnswerLookup:
        """A lookup that waits for its thread from now on."""
        # As long as the lookup itself may take: the store, the embedding, the store again, and the judge.
        options = self._options
        patience_s = 2 * options.budget_s + options.embedding_budget_s + options.judge_budget_s
        return AnswerLookup(self, question, patience_s)

    def submit(self, job: Callable[..., None], *args: Any) -> bool:
        """Runs a lookup's job on one of the threads; False: too many wait for one."""
        return self.threads.submit(job, *args)

    def keep(self, question: Question, answer: str, finish_reason: str, completion_tokens: int) -> None:
        """Stores an answer that finished well, soon; returns at once. Drops it when too many wait."""
        size = len(answer.encode(errors="replace"))
        if finish_reason not in ("stop", "length") or not 0 < size <= self._options.max_answer_bytes:
            self.metrics.stored("skipped")
            return
        now = time.time()
        entry = Entry(
            text=_kept_text(question),
            answer=answer,
            finish_reason=finish_reason,
            completion_tokens=completion_tokens,
            max_tokens=question.max_tokens,
            stored_at=now,
            expires_at=now + self._options.ttl(question.scope.namespace),
        )
        # A cut answer serves one length alone: it does not take the place of a whole one, or of another cut.
        key = question.key if finish_reason == "stop" else _cut_key(question)
        self._writer.put(question.scope, key, entry)

    def close(self, timeout: float = 2.0) -> None:
        """Writes what waits and lets go of the store; what hangs is left behind after `timeout` seconds."""
        self._writer.close(timeout)
        if self.audits:
            self.audits.close(timeout)
        self.threads.close(timeout)

    def find_exact(self, question: Question, calls: TimedCalls) -> Hit | None:
        """The answer that this very question got before. Raises Bypassed."""
        keys = question.key, _cut_key(question)

        def look() -> Entry | None:
            found = (self._store.get(question.scope, key) for key in keys)
            return next((entry for entry in found if entry and _answers(entry, question)), None)

        entry = calls.call(self._at_store, look, self._options.budget_s)
        return Hit(entry, "exact") if entry else None

    def find_semantic(self, question: Question, calls: TimedCalls) -> Hit | None:
        """The answer to a question that means the same. Raises Bypassed."""
        assert self._vectors
        assert self._decider
        if len(question.text) > MAX_CHARACTERS:
            self.metrics.refused("length")
            return None
        try:
            vector = self._vectors.embed(question.key, question.text, calls)
        except Bypassed as missed:
            if isinstance(missed.cause, InvalidArgument):
                return None  # Nothing in it that the model can read: there is nothing near it.
            raise
        near = calls.call(
            self._at_store,
            lambda: self._store.nearest(question.scope, vector, CANDIDATES),
            self._options.budget_s,
        )
        usable = [(similarity, entry) for similarity, entry in near if _usable(entry, question)]
        return self._decider.decide(question, usable, calls)


class AnswerLookup:
    """One question's way through both layers: on one thread, given up by another when it takes too long."""

    def __init__(self, cache: AnswerCache, question: Question, patience_s: float) -> None:
        self._cache, self._question = cache, question
        self._calls = TimedCalls(patience_s)
        self._layer = ""
        self._began = 0.0

    @property
    def until(self) -> float:
        """When the present step has had its time, in seconds of `time.perf_counter`; inf: none is limited."""
        return self._calls.until

    @property
    def begun(self) -> bool:
        """Whether it has got its thread."""
        return bool(self._layer)

    def exact(self) -> Hit | None:
        """The answer that this very question got before."""
        return self._timed("exact", self._cache.find_exact)

    def semantic(self) -> Hit | None:
        """The answer to a question that means the same."""
        if not self._cache.embeds or self._question.verbatim:
            return None
        return self._timed("semantic", self._cache.find_semantic)

    def give_up(self, now: float) -> bool:
        """Gives up a step that has had its time; True once."""
        if not self._calls.give_up(now):
            return False
        if self._layer:
            self._bypassed("timeout")
        return True

    def _timed(self, layer: str, find: Callable[[Question, TimedCalls], Hit | None]) -> Hit | None:
        self._calls.begin()
        self._layer, self._began = layer, time.perf_counter()
        try:
            hit = find(self._question, self._calls)
        except Exception as error:
            # Whatever it was, the engine can still answer the request.
            reason = error.reason if isinstance(error, Bypassed) else "error"
            if reason != "timeout":  # else it was counted when it was given up
                self._bypassed(reason)
            return None
        self._cache.metrics.looked_up(layer, "hit" if hit else "miss", time.perf_counter() - self._began)
        return hit

    def _bypassed(self, reason: str) -> None:
        self._cache.metrics.bypassed(reason)
        self._cache.metrics.looked_up(self._layer, "bypass", time.perf_counter() - self._began)


def _cut_key(question: Question) -> str:
    """Where an answer lies that ended at the question's own max_tokens."""
    return hashlib.sha256(f"{question.key} {question.max_tokens}".encode()).hexdigest()


def _kept_text(question: Question) -> str:
    """A question as it is stored: its SHA-256 where only the exact layer has a use for it."""
    if len(question.text) <= MAX_CHARACTERS and not question.verbatim:
        return question.text
    return DIGEST + hashlib.sha256(question.text.encode(errors="surrogatepass")).hexdigest()


def _answers(entry: Entry, question: Question) -> bool:
    """Whether an entry answers the question: a damaged store may return another question's."""
    return entry.text == _kept_text(question) and _usable(entry, question)


def _usable(entry: Entry, question: Question) -> bool:
    return entry.expires_at > time.time() and entry.fits(question.max_tokens)
