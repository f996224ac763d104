"""Finds the open streams by number, admits new ones and forgets those that are over."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from trimodal.errors import InvalidArgument, RequestError, Unavailable
from trimodal.speech.live.metrics import SpeechMetrics
from trimodal.speech.live.stream import LiveStream
from trimodal.speech.settings import SpeechSettings


class StreamTable:
    """Open streams by correlation id, and those whose END came and whose last words are still to come."""

    def __init__(
        self, settings: SpeechSettings, metrics: SpeechMetrics, *, clock: Callable[[], float]
    ) -> None:
        self._settings, self._metrics, self._clock = settings, metrics, clock
        # Guards all below, and tells of a stream that opens, and the end; no stream's lock is taken while it
        # is held.
        self._lock = threading.Condition()
        self._open: dict[int, LiveStream] = {}
        self._ending: dict[LiveStream, None] = {}  # in their order of coming
        self._closed: RequestError | None = None

    def admit(self, stream: LiveStream, speed: float | None = None, *, again: bool = False) -> None:
        """Opens a new stream under its number, unless the table is closed.

        Args:
            speed: seconds of audio that the recogniser hears in a second.
            again: its session was admitted with an earlier stream, and stays so: an eighth of the streams
                beyond `max_streams` are kept for those, and lateness refuses none.

        Raises Unavailable: no room, the recogniser is too far behind, or the number is taken meanwhile.
        """
        with self._lock:
            if self._closed:
                raise self._closed
            try:
                self._check_streams(again=again)
                if stream.recording:
                    self._check_recordings(speed)
                elif not again:
                    self._check_lateness()
            except Unavailable:
                self._metrics.streams["refused"].increment(1)
                raise
            if stream.id in self._open:
                raise Unavailable(f"stream {stream.id} is being started by another request")
            self._open[stream.id] = stream
            self._lock.notify_all()
            self._metrics.active_streams.set(self._count)

    def find(self, number: int) -> LiveStream:
        """The open stream of that number.

        Raises:
            InvalidArgument: there is none.
            RequestError: the table is closed.
        """
        with self._lock:
            if self._closed:
                raise self._closed
            stream = self._open.get(number)
        if stream is None:
            raise InvalidArgument(
                f"stream {number} is not open: its start was refused, it failed, or nothing came for "
                f"{self._settings.idle_s:g} s; begin with START"
            )
        return stream

    def get(self, number: int) -> LiveStream | None:
        """The open stream of that number, if there is one."""
        with self._lock:
            return self._open.get(number)

    def streams(self) -> list[LiveStream]:
        """Every stream that is not over; waits for one, until the table is closed."""
        with self._lock:
            while not self._count and not self._closed:
                self._lock.wait()
            return [*self._open.values(), *self._ending]

    @property
    def only_recordings(self) -> bool:
        """Whether nobody who speaks now would wait for a longer run of the recogniser."""
        with self._lock:
            return all(stream.recording for stream in (*self._open.values(), *self._ending))

    def close(self, error: RequestError) -> list[LiveStream]:
        """Admits and finds no stream any more but raises `error`; every stream that is not over."""
        with self._lock:
            self._closed = error
            self._lock.notify_all()
            return [*self._open.values(), *self._ending]

    def end(self, stream: LiveStream) -> None:
        """Its last audio is in: the number is free for another stream, the words are still to come."""
        with self._lock:
            if self._open.get(stream.id) is stream:
                del self._open[stream.id]
                self._ending[stream] = None

    def forget(self, stream: LiveStream) -> None:
        """Takes a stream out that is over."""
        with self._lock:
            if self._open.get(stream.id) is stream:
                del self._open[stream.id]
            self._ending.pop(stream, None)
            self._metrics.active_streams.set(self._count)

    @property
    def _count(self) -> int:
        return len(self._open) + len(self._ending)

    def _check_streams(self, *, again: bool) -> None:
        most = self._settings.max_streams
        if self._count >= (most + max(1, most // 8) if again else most):
            raise Unavailable(
                f"speech: {self._count} streams are open, as many as max_streams allows; try again later"
            )

    def _check_recordings(self, speed: float | None) -> None:
        """Recordings wait for each other, for as long as a client may wait."""
        streams = (*self._open.values(), *self._ending)
        waiting_s = sum(stream.progress.unheard_s for stream in streams if stream.recording)
        takes_s, most_s = waiting_s / (speed or math.inf), self._settings.max_pending_s
        if takes_s > most_s:
            raise Unavailable(
                f"speech: the recordings that wait take {takes_s:.0f} s to hear, more than max_pending_s "
                f"({most_s:g} s)",
                max(1.0, takes_s - most_s),
            )

    def _check_lateness(self) -> None:
        now, refuse_lag_s = self._clock(), self._settings.refuse_lag_s
        streams = (*self._open.values(), *self._ending)
        # A window's wait alone would not do: a stream may get each window soon enough, and too few of them.
        behind_s = max((stream.behind_s(now) for stream in streams), default=0.0)
        if behind_s > refuse_lag_s:
            raise Unavailable(
                f"speech: open streams are heard {behind_s:.1f} s late, more than refuse_lag_s "
                f"({refuse_lag_s:g} s); try again later"
            )
