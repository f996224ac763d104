"""Finds stored answers in front of generation and keeps new ones, each within its budget.

A find never raises: what is slow, down or damaged is a miss with a counter. Whether a
request may be answered from here, and whether its answer may be kept, is decided by
whoever reads its terms.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from trimodal.cache.bounded_calls import Bypassed, Guarded, Workers
from trimodal.cache.embedder import Embedder
from trimodal.cache.metrics import CacheMetrics
from trimodal.cache.options import CacheOptions
from trimodal.cache.stores.base import Limits, Store, open_store
from trimodal.cache.values import Entry, Hit, Question, Vector
from trimodal.cache.write_behind import Writer
from trimodal.errors import InvalidArgument, SettingsError

CANDIDATES = 4
"""Nearest answers that the guard looks at."""
MAX_CHARACTERS = 2_000
"""A longer question has no semantic layer: an embedding of its beginning says too little of it."""
_DIGEST = "sha256:"
_WORKERS = 8
_VECTORS_KEPT = 1024


class Judge(Protocol):
    """What decides whether two near questions may have the same answer; see `trimodal.cache.guard.guard`."""

    def judge(self, asked: str, stored: str, similarity: float) -> str:
        """The reason against it; "" when there is none."""


class AnswerCache:
    """Both layers over one store. Its methods are called from several threads at once.

    Args:
        options: what it is to be.
        embedder: of the semantic layer; None with mode "exact".
        metrics: where to count.
        store: another one than `options.store` names.
        guard, threshold: others than the calibrated ones.

    Raises:
        OperatorError: the store cannot be used, or no threshold keeps `max_false_hit` with this embedder.
    """

    def __init__(
        self,
        options: CacheOptions,
        embedder: Embedder | None,
        metrics: CacheMetrics,
        *,
        store: Store | None = None,
        guard: Judge | None = None,
        threshold: float | None = None,
    ) -> None:
        self._options, self._metrics = options, metrics
        self._embedder = embedder if options.mode == "semantic" else None
        if options.mode == "semantic" and embedder is None:
            raise SettingsError("cache 'semantic' needs a model that embeds questions: parameter 'embedder'")
        self._guard, self._threshold = guard, 1.0 if threshold is None else threshold
        if self._embedder:
            self._guard = guard or _guard(options.max_false_hit, self._embedder.checkpoint)
            if threshold is None:
                self._threshold = _threshold(options, self._embedder.checkpoint)
        limits = Limits(options.max_entries, options.budget_s)
        self._store = open_store(options.store, limits) if store is None else store
        self._workers = Workers(_WORKERS, "cache-store"), Workers(_WORKERS, "cache-embed")
        self._at_store = Guarded("the cache's store", self._workers[0])
        self._at_embedder = Guarded("the cache's embedding model", self._workers[1])
        self._vectors: OrderedDict[str, Vector] = OrderedDict()
        self._lock = threading.Lock()
        self._writer = Writer(self._store, self._vector_of, metrics, self._at_store.breaker)

    def exact(self, question: Question) -> Hit | None:
        """The answer that this very question got before. Returns within `budget_s`."""
        return self._timed("exact", lambda: self._exact(question))

    def semantic(self, question: Question) -> Hit | None:
        """An answer to a question that means the same. Returns within both budgets and the guard's time."""
        if self._embedder is None:
            return None
        return self._timed("semantic", lambda: self._semantic(question))

    def keep(self, question: Question, answer: str, finish_reason: str, completion_tokens: int) -> None:
        """Stores an answer that finished well, soon; returns at once. Drops it when too many wait."""
        size = len(answer.encode(errors="replace"))
        if finish_reason not in ("stop", "length") or not 0 < size <= self._options.max_answer_bytes:
            self._metrics.stored("skipped")
            return
        now = time.time()
        entry = Entry(
            text=_kept_text(question.text),
            answer=answer,
            finish_reason=finish_reason,
            completion_tokens=completion_tokens,
            max_tokens=question.max_tokens,
            stored_at=now,
            expires_at=now + self._options.ttl(question.place.namespace),
        )
        # A cut answer serves one length alone: it does not take the place of a whole one, or of another cut.
        key = question.key if finish_reason == "stop" else _cut_key(question)
        self._writer.put(question.place, key, entry)

    def close(self, timeout: float = 2.0) -> None:
        """Writes what waits and lets go of the store; what hangs is left behind after `timeout` seconds."""
        self._writer.close(timeout)
        for workers in self._workers:
            workers.close()

    def _timed(self, layer: str, find: Callable[[], Hit | None]) -> Hit | None:
        began = time.perf_counter()
        try:
            hit = find()
            outcome = "hit" if hit else "miss"
        except Exception as error:
            # Whatever it was, the request can still be answered by the engine.
            hit, outcome = None, "bypass"
            self._metrics.bypassed(error.reason if isinstance(error, Bypassed) else "error")
        self._metrics.looked_up(layer, outcome, time.perf_counter() - began)
        return hit

    def _exact(self, question: Question) -> Hit | None:
        keys = question.key, _cut_key(question)

        def look() -> Entry | None:
            found = (self._store.get(question.place, key) for key in keys)
            return next((entry for entry in found if entry and _answers(entry, question)), None)

        entry = self._at_store.call(look, self._options.budget_s)
        return Hit(entry, "exact") if entry else None

    def _semantic(self, question: Question) -> Hit | None:
        if len(question.text) > MAX_CHARACTERS:
            self._metrics.refused("length")
            return None
        try:
            vector = self._embed(question.key, question.text)
        except Bypassed as missed:
            if isinstance(missed.cause, InvalidArgument):
                return None  # Nothing in it that the model can read: there is nothing near it.
            raise
        near = self._at_store.call(
            lambda: self._store.nearest(question.place, vector, CANDIDATES), self._options.budget_s
        )
        for similarity, entry in near:
            if not similarity >= self._threshold:
                self._metrics.refused("threshold")
            elif _usable(entry, question):
                if not (reason := self._judge(question.text, entry.text, similarity)):
                    return Hit(entry, "semantic", min(1.0, float(similarity)))
                self._metrics.refused(reason)
        return None

    def _judge(self, asked: str, stored: str, similarity: float) -> str:
        return "" if asked == stored or self._guard is None else self._guard.judge(asked, stored, similarity)

    def _embed(self, key: str, text: str) -> Vector:
        embedder = self._embedder
        assert embedder is not None
        vector = self._at_embedder.call(
            lambda: embedder.embed(text), self._options.embedding_budget_s, (InvalidArgument,)
        )
        with self._lock:
            self._vectors[key] = vector
            while len(self._vectors) > _VECTORS_KEPT:
                self._vectors.popitem(last=False)
        return vector

    def _vector_of(self, key: str, entry: Entry) -> Vector | None:
        """What the semantic layer finds `entry` by; None: nothing. Called by the writer alone."""
        if self._embedder is None or entry.finish_reason != "stop" or entry.text.startswith(_DIGEST):
            return None
        with self._lock:
            vector = self._vectors.pop(key, None)
        if vector is None:
            try:
                return self._embed(key, entry.text)
            except Bypassed:
                return None  # The exact layer has it all the same.
        return vector


def _cut_key(question: Question) -> str:
    """Where an answer lies that ended at the question's own max_tokens."""
    return hashlib.sha256(f"{question.key} {question.max_tokens}".encode()).hexdigest()


def _kept_text(text: str) -> str:
    """A question as it is stored: of a long one its SHA-256, as only the exact layer has a use for it."""
    if len(text) <= MAX_CHARACTERS:
        return text
    return _DIGEST + hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _answers(entry: Entry, question: Question) -> bool:
    """A store that mixes up its entries is damaged: nobody gets another question's answer."""
    return entry.text == _kept_text(question.text) and _usable(entry, question)


def _usable(entry: Entry, question: Question) -> bool:
    return entry.expires_at > time.time() and entry.fits(question.max_tokens)


def _guard(max_false_hit: float, checkpoint: str) -> Judge:
    from trimodal.cache.guard.guard import Guard

    guard = Guard(max_false_hit, checkpoint)
    guard.judge("What is a lexicon?", "What is a dictionary?")  # Loads them now: no request waits for it.
    return guard


def _threshold(options: CacheOptions, checkpoint: str) -> float:
    from trimodal.cache.calibration import SHIPPED, Calibration

    return Calibration.read(options.calibration or SHIPPED, checkpoint).threshold(options.max_false_hit)
