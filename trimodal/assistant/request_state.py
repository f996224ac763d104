"""One request of the assistant under way: who is told, which stages work, and its one end.

Every way out passes through `send(final=True)` or `fail`, of which the first to come
counts; what the other stages still do is then told to stop.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from trimodal.assistant.request import AskRequest
from trimodal.assistant.tensors import Columns
from trimodal.assistant.values import ANSWER, Piece, Stopped
from trimodal.errors import RequestError, Unavailable

# The llm keeps the deadline itself, and what it has said by then; it is given so long to do so.
LLM_GRACE_S = 0.5


class Sink(Protocol):
    """Where responses go: the last is `send` with `final`, or `fail`. Calls come one at a time."""

    def send(self, columns: Columns, *, final: bool) -> None: ...

    def fail(self, error: RequestError) -> None: ...

    def is_cancelled(self) -> bool:
        """Whether the client has given up or gone."""


class Job:
    """State of one request; its methods are called from several threads.

    Args:
        stopper: runs what `stopping` was given, off the caller's thread.
        on_end: called once, with the answer's finish_reason or the error.

    Attributes:
        timing: milliseconds by name, as the last response tells them.
    """

    def __init__(
        self,
        request: AskRequest,
        sink: Sink,
        *,
        stopper: Callable[[Callable[[], None]], object],
        on_end: Callable[[Job, str | RequestError], None],
    ) -> None:
        self.request = request
        self.sink = sink
        self.arrived = time.perf_counter()
        self.timing: dict[str, float | None] = dict.fromkeys(
            ("heard", "saw", "queue", "ttft", "answer", "total")
        )
        self._stopper = stopper
        self._on_end = on_end
        self._lock = threading.RLock()
        self._over = False
        self._stages: dict[str, float] = {}
        self._stops: dict[int, Callable[[], None]] = {}
        self._deadline = self.arrived + (request.deadline_ms or math.inf) / 1e3

    @property
    def over(self) -> bool:
        """Whether the client has been told the end."""
        return self._over

    def check(self) -> None:
        """Raises Stopped when there is no use in going on."""
        if self._over:
            raise Stopped

    def send(self, columns: Columns, *, finish_reason: str = "") -> None:
        """Tells the client something; with a finish_reason it is the last. Raises Stopped when it is over."""
        with self._lock:
            self.check()
            self.sink.send(columns, final=bool(finish_reason))
            if finish_reason:
                self._end(finish_reason)

    def fail(self, error: RequestError) -> bool:
        """Ends the request with an error; False: it was over."""
        with self._lock:
            if self._over:
                return False
            try:
                self.sink.fail(error)
            finally:
                self._end(error)
            return True

    def wrote(self, piece: Piece) -> None:
        """Takes the times of a piece of the answer; with the last, `timing` is complete."""
        now = time.perf_counter()
        if piece.text and self.timing["ttft"] is None:
            self.timing["ttft"] = _ms(now - self.arrived)
        if piece.finish_reason:
            queue_ms = piece.note.get("queue_ms")
            self.timing["queue"] = None if queue_ms is None else round(float(queue_ms[0]), 3)
            self.timing["answer"] = _ms(now - self._stages[ANSWER])
            self.timing["total"] = _ms(now - self.arrived)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """While a stage works. Its time goes into `timing`."""
        began = time.perf_counter()
        with self._lock:
            self._stages[name] = began
        try:
            yield
        finally:
            with self._lock:
                del self._stages[name]
            self.timing[name] = _ms(time.perf_counter() - began)

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """While `stop` has to be called if the request ends. Raises Stopped when it has."""
        key = id(stop)
        with self._lock:
            self.check()
            self._stops[key] = stop
        try:
            yield
        finally:
            with self._lock:
                self._stops.pop(key, None)

    def left_ms(self, name: str, limit_ms: int | None) -> int | None:
        """What is left of a limit that began at the arrival; None: there is none.

        Raises:
            Unavailable: nothing is left.
        """
        if limit_ms is None:
            return None
        waited = (time.perf_counter() - self.arrived) * 1e3
        if waited >= limit_ms:
            raise Unavailable(f"{name} passed: no answer was begun after {waited:.0f} ms")
        return max(1, int(limit_ms - waited))

    def look(self, now: float) -> RequestError | None:
        """Why the request must end now, if it must; `now` is time.perf_counter()."""
        with self._lock:
            stages = tuple(self._stages)
        grace = LLM_GRACE_S if stages == (ANSWER,) else 0.0
        if now <= self._deadline + grace:
            return None
        waited = f"deadline_ms passed: not done after {(now - self.arrived) * 1e3:.0f} ms"
        return Unavailable(f"{', '.join(stages)}: {waited}" if stages else waited)

    def _end(self, reason: str | RequestError) -> None:
        self._over = True
        stops, self._stops = list(self._stops.values()), {}
        if isinstance(reason, RequestError):  # else the stages have come to their end
            for stop in stops:
                self._stopper(stop)
        self._on_end(self, reason)


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)
