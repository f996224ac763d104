"""Write-behind: stores answers in a background thread with a bounded queue; drops and counts the rest."""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time

from trimodal.cache.bounded_calls import CircuitBreaker
from trimodal.cache.embedder import QuestionVectors
from trimodal.cache.metrics import CacheMetrics
from trimodal.cache.stores.base import Store
from trimodal.cache.values import CacheScope, Entry, Vector

_WAITING = 256
_COUNT_EVERY_S = 5.0
DIGEST = "sha256:"
"""Begins the stored text of a question that is too long to be kept, or verbatim: its hash follows."""
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
        self._waiting: queue.Queue[tuple[CacheScope, str, Entry] | None] = queue.Queue(_WAITING)
        self._until = math.inf
        self._lock = threading.Lock()  # nothing is queued after the end that `close` queues
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cache-writer", daemon=True)
        self._thread.start()

    def put(self, scope: CacheScope, key: str, entry: Entry) -> None:
        """Queues an answer; never waits."""
        try:
            with self._lock:
                if self._closing.is_set():
                    raise queue.Full
                self._waiting.put_nowait((scope, key, entry))
        except queue.Full:
            self._metrics.stored("dropped")

    def close(self, timeout: float) -> None:
        """Writes what waits, for at most `timeout` seconds, and closes the store."""
        self._until = time.monotonic() + timeout
        with self._lock:
            self._closing.set()
        try:
            self._waiting.put(None, timeout=timeout)
        except queue.Full:
            return  # The store hangs: its thread is a daemon.
        self._thread.join(max(0.0, self._until - time.monotonic()))

    def _run(self) -> None:
        counted = 0.0
        while True:
            try:
                item = self._waiting.get(timeout=_COUNT_EVERY_S)
            except queue.Empty:
                self._count()
                continue
            if item is None:
                break
            while not self._breaker.closed and not self._closing.wait(_LOOK_EVERY_S):
                pass
            if time.monotonic() > self._until or item[2].expires_at <= time.time():
                self._metrics.stored("dropped")
                continue
            self._metrics.stored(self._write(*item))
            if time.monotonic() - counted > _COUNT_EVERY_S:
                self._count()
                counted = time.monotonic()
        with contextlib.suppress(Exception):  # What it could not write is lost: no request waits for it.
            self._store.close()

    def _write(self, scope: CacheScope, key: str, entry: Entry) -> str:
        try:
            self._store.put(scope, key, entry, self._vector(key, entry))
        except Exception:
            return "failed"
        return "kept"

    def _vector(self, key: str, entry: Entry) -> Vector | None:
        if self._vectors is None or entry.finish_reason != "stop" or entry.text.startswith(DIGEST):
            return None
        return self._vectors.take(key, entry.text)

    def _count(self) -> None:
        if not self._breaker.closed:
            return
        try:
            self._metrics.entries.set(self._store.count())
        except Exception:
            return  # The next time will do.
