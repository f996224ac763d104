"""Carries the windows of all streams to the recogniser and the words back: one a stream, many at once.

The calls block, each in a thread of its own, so that the windows of different
streams wait at the recogniser together and are gathered into batches there.
Answers to clients are not its affair.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from trimodal.errors import InvalidArgument, RequestError, as_request_error
from trimodal.speech.live.metrics import SpeechMetrics
from trimodal.speech.live.streams import LiveStream, StreamTable
from trimodal.speech.session.session import PlannedWindow
from trimodal.speech.values import Recognition, Window

# Of the recogniser on one stream, in a row: five seconds of it, then the stream fails. Nothing is skipped.
MAX_FAILURES = 8
BACKOFF_S, MAX_BACKOFF_S = 0.2, 1.0

Recognizer = Callable[[Window], Recognition]


class WindowCarrier:
    """Threads that take a stream's due window, have it heard, and tell its session."""

    def __init__(
        self,
        recognize: Recognizer,
        table: StreamTable,
        metrics: SpeechMetrics,
        *,
        at_once: int,
        clock: Callable[[], float],
        settle: Callable[[LiveStream], None],
    ) -> None:
        """`settle` is called after each change of a stream: an answer may have become possible."""
        self._recognize = recognize
        self._table = table
        self._metrics = metrics
        self._clock = clock
        self._settle = settle
        self._lock = threading.Lock()  # of the count
        self._in_flight = 0
        self._ready: queue.SimpleQueue[LiveStream | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name=f"window-{number}", daemon=True)
            for number in range(at_once)
        ]
        for thread in self._threads:
            thread.start()

    def wake(self, stream: LiveStream) -> None:
        """Has a thread look whether a window is due. Cheap, and harmless when none is."""
        if self._table.order(stream):
            self._ready.put(stream)

    def close(self) -> None:
        """Ends the threads; what is being heard is waited for, what waits is not heard any more."""
        self._closing.set()
        for _ in self._threads:
            self._ready.put(None)
        for thread in self._threads:
            thread.join(5.0)

    def _run(self) -> None:
        while (stream := self._ready.get()) is not None and not self._closing.is_set():
            due = self._table.looked(stream)
            try:
                with stream.lock:
                    gone = stream.closed or stream.error
                    planned = None if gone else stream.session.next_window()
                    waiting = stream.session.outstanding
                if planned:
                    self._carry(stream, planned, due)
                elif not waiting:
                    self._table.heard(stream)
            except Exception as error:
                self._give_up(stream, as_request_error(error))

    def _carry(self, stream: LiveStream, planned: PlannedWindow, due: float) -> None:
        self._count(+1)
        try:
            heard = self._recognize(planned.window)
        except Exception as error:
            self._missed(stream, planned, as_request_error(error))
            return
        finally:
            self._count(-1)
        with stream.lock:
            stream.failures = 0
            stream.session.accept(planned, heard)
            self._table.progressed(stream)
        self._metrics.turnaround.observe(self._clock() - due)
        self._table.heard(stream)
        self._settle(stream)
        self.wake(stream)

    def _missed(self, stream: LiveStream, planned: PlannedWindow, error: RequestError) -> None:
        """The recogniser failed on a window: it is tried again a little later, a few times."""
        self._metrics.retries.increment(1)
        with stream.lock:
            stream.session.give_up(planned)
            stream.failures += 1
            failures = stream.failures
        if failures >= MAX_FAILURES or isinstance(error, InvalidArgument):
            self._give_up(stream, error)
        else:
            self._closing.wait(min(BACKOFF_S * failures, MAX_BACKOFF_S))
            self.wake(stream)

    def _give_up(self, stream: LiveStream, error: RequestError) -> None:
        """Nothing more is heard of a stream; the answer that is owed, or its next chunk, says why."""
        with stream.lock:
            stream.error = error
        self._table.heard(stream)
        self._settle(stream)

    def _count(self, change: int) -> None:
        with self._lock:
            self._in_flight += change
            self._metrics.windows_in_flight.set(self._in_flight)
