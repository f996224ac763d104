"""Write-behind: stores answers in a background thread with a bounded queue; drops and counts the rest."""

from __future__ import annotations

import contextlib
import math
import threading
import time

from trimodal.cache.bounded_calls import CircuitBreaker, DaemonThreads
from trimodal.cache.embedder import QuestionVectors
from trimodal.cache.metrics import CacheMetrics
from trimodal.cache.stores.base import Store
from trimodal.cache.values import CacheScope, Entry, Vector

_WAITING = 256
_COUNT_EVERY_S = 5.0
DIGEST = "sha256:"
"""Begins the stored text of a question that is too long to be kept: its hash follows."""
_LOOK_EVERY_S = 0.05


class WriteBehind:
    """Stores answers one after the other, and closes the store after the last.

    Args:
        vectors: those that the semantic layer finds answers by; None: there is no such layer.
        breaker: of the store's lookups; while it is open answers wait here.
    """

    def __init__(
        self, store: Store, vectors: QuestionVectors | None, metrics: CacheMetrics, breaker: CircuitBreaker
    ) -> None:
        self._store, self._vectors, self._metrics, self._breaker = store, vectors, metrics, breaker
        self._threads = DaemonThreads(1, "cache-writer", 1 + _WAITING)
        self._closing = threading.Event()
        self._until = math.inf
        self._counted = 0.0

    def put(self, scope: CacheScope, key: str, entry: Entry) -> None:
        """Queues an answer; never waits."""
        if not self._threads.submit(self._write, scope, key, entry):
            self._metrics.stored("dropped")

    def close(self, timeout: float) -> None:
        """Writes what waits, for at most `timeout` seconds, and closes the store."""
        self._until = time.monotonic() + timeout
        self._closing.set()
        self._threads.close(timeout, last=self._close_store)

    def _write(self, scope: CacheScope, key: str, entry: Entry) -> None:
        while not self._breaker.closed and not self._closing.wait(_LOOK_EVERY_S):
            pass
        if time.monotonic() > self._until or entry.expires_at <= time.time():
            self._metrics.stored("dropped")
            return
        try:
            self._store.put(scope, key, entry, self._vector(key, entry))
        except Exception:
            self._metrics.stored("failed")
        else:
            self._metrics.stored("kept")
        if self._breaker.closed and time.monotonic() - self._counted > _COUNT_EVERY_S:
            self._counted = time.monotonic()
            with contextlib.suppress(Exception):  # The next time will do.
                self._metrics.entries.set(self._store.count())

    def _vector(self, key: str, entry: Entry) -> Vector | None:
        if self._vectors is None or entry.finish_reason != "stop" or entry.text.startswith(DIGEST):
            return None
        return self._vectors.take(key, entry.text)

    def _close_store(self) -> None:
        with contextlib.suppress(Exception):  # What it could not write is lost: no request waits for it.
            self._store.close()
