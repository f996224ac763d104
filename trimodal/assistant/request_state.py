"""Holds one request under way: where its responses go, which stages work, and its times.

A request ends with `send(finish_reason=…)` or `fail`, whichever comes first; what the other stages still do
is then cancelled.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from trimodal import trace
from trimodal.assistant.metrics import AssistantMetrics
from trimodal.assistant.request import AskRequest
from trimodal.assistant.values import ANSWER, HEARD, SAW, Columns, Piece, Stopped
from trimodal.errors import RequestError, Unavailable, as_request_error
from trimodal.trace import Span, span

# The llm ends its answer at the deadline by itself and keeps what it has said; it gets this long for it.
LLM_GRACE_S = 0.5


class Sink(Protocol):
    """Where responses go: the last is `send` with `final`, or `fail`. Calls come one at a time."""

    def send(self, columns: Columns, *, final: bool) -> None: ...

    def fail(self, error: RequestError) -> None: ...

    def is_cancelled(self) -> bool:
        """Whether the client has given up or gone."""


class RequestState:
    """State of one request; its methods are called from several threads.

    `metrics` counts its end.
    """

    def __init__(self, request: AskRequest, sink: Sink, metrics: AssistantMetrics) -> None:
        self.request = request
        self.sink = sink
        self.done = False  # the client is told the end; guarded by the lock, read without it
        self.arrived = time.perf_counter()
        self.spans: list[Span] | None = [] if request.trace else None
        # Milliseconds, as the last response tells them.
        self.timing: dict[str, float | None] = dict.fromkeys((HEARD, SAW, "queue", "ttft", ANSWER, "total"))
        self._metrics = metrics
        self._stops: dict[int, Callable[[], None]] = {}
        self._lock = threading.RLock()
        self._stages: dict[str, float] = {}
        self._deadline = self.arrived + (request.deadline_ms or math.inf) / 1e3
        # Until the llm is asked, which is told what is left of it.
        self._first_text_by = self.arrived + (request.ttft_deadline_ms or math.inf) / 1e3

    def check(self) -> None:
        """Raises Stopped when the request is over."""
        if self.done:
            raise Stopped

    @contextmanager
    def on_cancel(self, stop: Callable[[], None]) -> Iterator[None]:
        """Calls `stop`, which must not wait, if the request is cancelled inside. Raises Stopped: it was."""
        with self._lock:
            self.check()
            self._stops[id(stop)] = stop
        try:
            yield
        finally:
            with self._lock:
                self._stops.pop(id(stop), None)

    def send(self, columns: Columns, *, finish_reason: str = "") -> None:
        """Sends a response; with a finish_reason it is the last. Raises Stopped when the request is over."""
        with self._lock:
            self.check()
            self.done = bool(finish_reason)  # before: who is told, and asks again at once, finds room
            try:
                self.sink.send(columns, final=self.done)
            except BaseException:
                self.done = False  # its error is to be told
                raise
            if finish_reason:  # its stages have come to their end, so nothing is stopped
                self._count(finish_reason)

    def fail(self, error: RequestError) -> bool:
        """Ends the request with an error and cancels its stages; False: it was over."""
        with self._lock:
            if self.done:
                return False
            self.done = True  # before: who is told, and asks again at once, finds room
            try:
                self.sink.fail(error)
            except Exception as defect:  # the transport is gone: logged, the caller's thread must live
                as_request_error(defect)
            for stop in self._stops.values():
                stop()
            self._count(error)
            return True

    def wrote(self, piece: Piece) -> None:
        """Takes the times of a piece of the answer; with the last, `timing` is complete."""
        now = time.perf_counter()
        if piece.text and self.timing["ttft"] is None:
            self.timing["ttft"] = _ms(now - self.arrived)
        if self.spans is not None and piece.text:
            self.spans.append(span("text", now, now))
        if piece.finish_reason:
            queue_ms = piece.columns.get("queue_ms")
            self.timing["queue"] = None if queue_ms is None else round(float(queue_ms[0]), 3)
            self.timing["answer"] = _ms(now - self._stages[ANSWER])
            self.timing["total"] = _ms(now - self.arrived)
            if self.spans is not None:  # the last response tells of its own stage, too
                self.spans.append(span(ANSWER, self._stages[ANSWER], now))
                self.spans += [{**one, "of": ANSWER} for one in trace.read(piece.columns)]

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Notes that a stage works, and its time in `timing`."""
        began = time.perf_counter()
        with self._lock:
            self._stages[name] = began
            if name == ANSWER:
                self._first_text_by = math.inf
        try:
            yield
        finally:
            with self._lock:
                del self._stages[name]
            ended = time.perf_counter()
            self.timing[name] = _ms(ended - began)
            if self.spans is not None:
                self.spans.append(span(name, began, ended))

    def left_ms(self, name: str, limit_ms: int | None) -> int | None:
        """Milliseconds left of a limit since the arrival, None for none. Raises Unavailable: it passed."""
        if limit_ms is None:
            return None
        waited = (time.perf_counter() - self.arrived) * 1e3
        if waited >= limit_ms:
            raise Unavailable(f"{name} passed: no answer was begun after {waited:.0f} ms")
        return max(1, int(limit_ms - waited))

    def overdue(self, now: float) -> RequestError | None:
        """Returns the error of a request whose deadline has passed; `now` is time.perf_counter()."""
        with self._lock:
            stages, first_text_by = tuple(self._stages), self._first_text_by
        grace = LLM_GRACE_S if stages == (ANSWER,) else 0.0
        waited_ms = (now - self.arrived) * 1e3
        if now > self._deadline + grace:
            waited = f"deadline_ms passed: not done after {waited_ms:.0f} ms"
        elif now > first_text_by:
            waited = f"ttft_deadline_ms passed: no answer was begun after {waited_ms:.0f} ms"
        else:
            return None
        return Unavailable(f"{', '.join(stages)}: {waited}" if stages else waited)

    def _count(self, reason: str | RequestError) -> None:
        self._metrics.ended(reason)
        self._metrics.e2e.observe(time.perf_counter() - self.arrived)
        if (ttft := self.timing["ttft"]) is not None:
            self._metrics.ttft.observe(ttft / 1e3)


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)
