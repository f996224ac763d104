"""Embeds questions within their time budget, and keeps the vectors until their answers are stored."""

from __future__ import annotations

import math
import queue
import threading
from collections import OrderedDict

from trimodal.cache.bounded_calls import Bypassed, DaemonThreads, Guarded, TimedCalls
from trimodal.cache.values import Embed, Vector
from trimodal.errors import InvalidArgument

VECTORS_KEPT = 1024
STORING_S = 1.0
"""How long the embedding of an answer that is stored may take, when that is more than a lookup's. No request
waits for it, and an answer stored without its vector would be found by no paraphrase until it expires."""


class QuestionVectors:
    """Vectors by the question's key. Called from several threads at once.

    Args:
        threads: for embeddings that are made when an answer is stored.
        callers: how many threads may call the embedding model at once.
        budget_s: how long one embedding may take.
    """

    def __init__(self, embed: Embed, threads: DaemonThreads, callers: int, budget_s: float) -> None:
        self._embed = embed
        self._threads = threads
        self._budget_s = budget_s
        self._guarded = Guarded("the cache's embedding model", callers)
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Vector] = OrderedDict()

    def embed(self, key: str, text: str, calls: TimedCalls, budget_s: float | None = None) -> Vector:
        """The vector of a question, by a call of `calls` within `budget_s` or a lookup's. Raises Bypassed."""

        def work() -> Vector:
            vector = self._embed(text)
            # Also when the lookup has been given up by now: its answer is stored later.
            with self._lock:
                self._kept[key] = vector
                while len(self._kept) > VECTORS_KEPT:
                    self._kept.popitem(last=False)
            return vector

        return calls.call(self._guarded, work, budget_s or self._budget_s, (InvalidArgument,))

    def take(self, key: str, text: str) -> Vector | None:
        """The vector of a question whose answer is stored now, once; None: there is none in time."""
        with self._lock:
            vector = self._kept.pop(key, None)
        return self._embed_on_a_thread(key, text) if vector is None else vector

    def _embed_on_a_thread(self, key: str, text: str) -> Vector | None:
        budget_s = max(STORING_S, self._budget_s)
        calls = TimedCalls(budget_s)
        done: queue.SimpleQueue[Vector | None] = queue.SimpleQueue()

        def job() -> None:
            calls.begin()
            try:
                done.put(self.embed(key, text, calls, budget_s))
            except Bypassed:
                done.put(None)

        if not self._threads.submit(job):
            return None
        try:
            return done.get(timeout=budget_s)
        except queue.Empty:
            calls.give_up(math.inf)
            return None
