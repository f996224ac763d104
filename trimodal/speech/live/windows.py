"""Queues the streams whose window is due, and says how many windows are at the recogniser at once."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

# A window may be at the recogniser for so long: what waits there is heard in the order in which it came, and
# gets no audio that comes meanwhile; what waits here does.
_AHEAD_S = 0.5
# … or for so many times as long as one alone: the recogniser may take a batch in the time of one.
_TIMES = 2.5
_LEAST = 2  # one is heard, one is on its way
_GROWS, _SHRINKS = 0.5, 0.8  # how many are tried, with each window that was soon back, or late
_LATELY = 0.7  # of the time that windows took, with each window
_KEPT = 0.98  # of what was measured, with each window: the last fifty count most


class Waiting(Protocol):
    """A stream whose window waits: since `due`, and it may wait `patience_s` longer than the most urgent.

    Recordings wait as one: from when a window of any of them was heard.
    """

    @property
    def due(self) -> float | None: ...

    @property
    def patience_s(self) -> float: ...

    @property
    def recording(self) -> bool: ...


Stream = TypeVar("Stream", bound=Waiting)


class WindowQueue(Generic[Stream]):
    """Hands streams to the window threads, the most urgent first.

    As many are handed out at once as the recogniser hears in half a second, or as are back in 2.5 times what
    one alone takes, at most `most`: all at once where it is a GPU, two where it is a processor with a Whisper
    as large as it can bear; of recordings one less.
    """

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        # Guards all below, and tells of a stream that waits, a window that is heard, and the end.
        self._changed = threading.Condition()
        self._waiting: list[Stream] = []
        self._in_flight = self._recordings = 0  # of these in flight
        self._recorded = -math.inf  # when a window of a recording was heard last
        self._closed = False
        self._since = 0.0  # up to when time with windows in flight is counted
        self._new_busy_s = 0.0  # since the last window was heard
        self._busy_s = self._windows = self._audio_s = 0.0  # lately: time with windows in flight; heard in it
        # Of those in flight, and of those given up that are not back: since when, and if alone then.
        self._sent: dict[int, tuple[float, bool]] = {}
        self._given_up: set[int] = set()  # of these
        self._back = -math.inf  # when the recogniser last answered
        self._tried = float(_LEAST)  # as many at once as are soon back
        self._took_s = self._alone_s = 0.0  # by a window lately; by the last ones alone, or the quickest

    @property
    def speed(self) -> float | None:
        """Seconds of audio heard in a second of work; None before any."""
        with self._changed:
            return self._audio_s / self._busy_s if self._audio_s and self._busy_s else None

    @property
    def moved(self) -> float:
        """When a window last went to the recogniser or came back."""
        with self._changed:
            return self._since

    @property
    def back(self) -> float:
        """When a window last came back with what is heard; -inf: none has."""
        with self._changed:
            return self._back

    @property
    def room(self) -> int:
        """How many windows may be at the recogniser now."""
        with self._changed:
            return self._room()

    def put(self, stream: Stream) -> None:
        """Adds a stream whose window is due."""
        with self._changed:
            self._waiting.append(stream)
            self._changed.notify()

    def get(self) -> Stream | None:
        """Waits for a stream whose window may go to the recogniser now; None once closed."""
        with self._changed:
            while not self._closed and not (ready := self._ready()):
                self._changed.wait()
            if self._closed:
                return None
            stream = min(ready, key=self._until)
            self._waiting.remove(stream)
            self._count_time()
            self._sent[id(stream)] = self._since, not self._in_flight
            self._in_flight += 1
            self._recordings += stream.recording
            return stream

    def done(self, stream: Stream, audio_s: float) -> None:
        """A stream's window is back: so much audio was heard, 0 if none was due any more.

        How slow the recogniser is tells most of all one that was given up.
        """
        with self._changed:
            late = id(stream) in self._given_up
            self._count_time(late=late)
            full, last = not late and self._in_flight >= self._room(), not late and self._in_flight == 1
            since, first = self._sent.pop(id(stream))
            if late:
                self._given_up.remove(id(stream))
            else:
                self._in_flight -= 1
                self._recordings -= stream.recording
            if stream.recording:
                self._recorded = self._since
            if audio_s:
                self._back = self._since
                self._adapt(self._since - since, alone=first and last, full=full)
                self._busy_s = self._busy_s * _KEPT + self._new_busy_s
                self._new_busy_s = 0.0
                self._windows = self._windows * _KEPT + 1
                self._audio_s = self._audio_s * _KEPT + audio_s
            self._changed.notify_all()

    def give_up(self, stream: Stream) -> None:
        """Takes out a stream whose window does not come back: its place is free, its thread is not."""
        with self._changed:
            if stream in self._waiting:
                self._waiting.remove(stream)
            elif id(stream) in self._sent and id(stream) not in self._given_up:
                self._given_up.add(id(stream))
                self._in_flight -= 1
                self._recordings -= stream.recording
            self._changed.notify_all()

    def forget(self) -> None:
        """Forgets how quick the recogniser was: it failed, and all that wait shall learn of it together."""
        with self._changed:
            self._busy_s = self._new_busy_s = self._windows = self._audio_s = 0.0
            self._tried, self._took_s, self._alone_s = float(_LEAST), 0.0, 0.0
            self._changed.notify_all()

    def close(self) -> None:
        """Hands out none any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _ready(self) -> list[Stream]:
        room = self._room()
        if self._in_flight >= room:
            return []
        return [one for one in self._waiting if not one.recording or self._recordings < max(1, room - 1)]

    def _until(self, one: Stream) -> float:
        due = one.due or 0.0
        return (max(due, self._recorded) if one.recording else due) + one.patience_s

    def _room(self) -> int:
        if not (self._windows and self._busy_s):
            return self._most
        return min(self._most, max(int(_AHEAD_S * self._windows / self._busy_s), int(self._tried)))

    def _adapt(self, took_s: float, *, alone: bool, full: bool) -> None:
        """Tries more at once while windows are soon back, and fewer where they queue at the recogniser."""
        self._took_s = self._took_s * _LATELY + took_s * (1 - _LATELY) if self._took_s else took_s
        if alone or not self._alone_s:
            self._alone_s = took_s
        self._alone_s = min(self._alone_s, took_s)
        if self._took_s > _TIMES * self._alone_s:
            self._tried = max(self._tried * _SHRINKS, float(_LEAST))
        elif full:
            self._tried = min(self._tried + _GROWS, float(self._most))

    def _count_time(self, *, late: bool = False) -> None:
        """`late`: one that was given up was at the recogniser until now."""
        now = self._clock()
        if self._in_flight or late:
            self._new_busy_s += now - self._since
        self._since = now
