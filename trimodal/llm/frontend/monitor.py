"""Looks every few milliseconds for clients that left and for answers that are too late, wherever they are.

Ending a request is the service's affair, and what can still be in time the scheduler's.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable

from trimodal.errors import Cancelled, RequestError, Unavailable
from trimodal.llm.frontend.dispatcher import Dispatch
from trimodal.llm.frontend.registry import Book
from trimodal.llm.frontend.request_state import Stream
from trimodal.llm.frontend.ticketing import ttft_deadline
from trimodal.llm.settings import LlmSettings

_REPORT_S = 1.0
_RETRY_S = (0.05, 60.0)


class Watch:
    """A thread over the streams in `book`.

    Args:
        lock: the service's; clients are asked without it.
        fail: ends a stream with an error. cut: ends it with what came of its answer. Both need the lock.
    """

    def __init__(
        self,
        settings: LlmSettings,
        lock: threading.RLock,
        book: Book,
        dispatch: Dispatch,
        fail: Callable[[Stream, RequestError], None],
        cut: Callable[[Stream], None],
    ) -> None:
        self._period_s = settings.cancel_poll_ms / 1e3
        self._expires = settings.scheduler != "fifo"
        self._lock, self._book, self._dispatch = lock, book, dispatch
        self._fail, self._cut = fail, cut
        self._reported = 0.0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="llm-watch", daemon=True)
        self._thread.start()

    def close(self, timeout: float) -> None:
        """Ends the thread."""
        self._closing.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._closing.wait(self._period_s):
            try:
                self._look()
            except Exception:
                # Without this thread no client could leave any more.
                traceback.print_exc(file=sys.stderr)

    def _look(self) -> None:
        with self._lock:
            streams = list(self._book.streams)
            if time.perf_counter() - self._reported > _REPORT_S:
                self._reported = time.perf_counter()
                self._dispatch.report()
        gone = [stream for stream in streams if stream.client_left()]
        now = time.perf_counter()
        with self._lock:
            for stream in gone:
                if not stream.ended:
                    self._fail(stream, Cancelled("the client cancelled the request"))
            for stream in streams:
                if not stream.ended:
                    self._check_time(stream, now)
            if streams:
                self._dispatch.changed()

    def _check_time(self, stream: Stream, now: float) -> None:
        waited = now - stream.arrived
        if now > stream.deadline:
            if stream.completion_tokens:
                self._cut(stream)
            else:
                problem = f"deadline_ms passed: no text yet after {waited * 1e3:.0f} ms"
                self._fail(stream, Unavailable(problem))
        elif self._expires and stream.generation:
            ticket = stream.generation.ticket
            # One that several listen to waits on the laxest of their terms; this one's may be stricter.
            if not ticket.started and ttft_deadline(stream) < min(now, ticket.expires):
                least, most = _RETRY_S
                problem = f"ttft_deadline_ms cannot be kept any more after {waited * 1e3:.0f} ms in the queue"
                self._fail(stream, Unavailable(problem, max(least, min(waited, most))))
