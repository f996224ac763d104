"""The open streams: who is let in, found and forgotten. What their audio says is not known here."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from trimodal.audio.values import SAMPLE_RATE
from trimodal.errors import InvalidArgument, RequestError, Unavailable
from trimodal.speech.live.metrics import SpeechMetrics
from trimodal.speech.live.request import MAX_CHUNK_S, Chunk
from trimodal.speech.session.session import LiveSession, Update


class Sink(Protocol):
    """Where the one answer of a request goes; exactly one of the two is called, once, from any thread."""

    def answer(self, update: Update, *, final: bool) -> None: ...

    def fail(self, error: RequestError) -> None: ...


@dataclass(eq=False)
class LiveStream:
    """State of one stream. `lock` guards the session and what says `locked`; the table guards the rest.

    Attributes:
        inbox: (locked) chunks that came before the answer to the one before them was out: Triton hands
            them over as soon as a client sends them. They are taken in one by one, in order.
        owed: (locked) where the answer goes to the chunk that is being taken in, or waits for the recogniser.
        answering: (locked) that answer is on its way out; the next chunk waits, or its answer might overtake.
        ending: (locked) its END was taken.
        error: (locked) why it failed; its next chunk, or the answer that is owed, says so.
        failures: (locked) of the recogniser, in a row.
        voiced_s: (locked) seconds of speech already counted.
        closed: it is not in the table any more, nobody asks for what is still being heard.
        began, seen: when it was admitted, and its client last heard or answered, on the table's clock.
        due: since when it waits for a look at its windows or for a window's words; None when it does not.
        queued: a look is ordered.
        received_s, heard_s: its audio, and up to where no window is due.
        hasty: its client sends faster than anybody speaks: it is behind because it wants to be.
    """

    id: int
    session: LiveSession
    began: float
    seen: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    inbox: deque[tuple[Chunk, Sink]] = field(default_factory=deque)
    owed: Sink | None = None
    answering: bool = False
    ending: bool = False
    error: RequestError | None = None
    failures: int = 0
    voiced_s: float = 0.0
    closed: bool = False
    due: float | None = None
    queued: bool = False
    received_s: float = 0.0
    heard_s: float = 0.0
    hasty: bool = False

    def put(self, chunk: Chunk, sink: Sink, most: int) -> bool:
        """Takes a chunk into the inbox; whether it is its turn at once.

        Args:
            most: samples that may wait there. An END is always taken.

        Raises:
            Unavailable: the client sent too far ahead of its answers.
        """
        with self.lock:
            waiting = sum(len(other.samples) for other, _ in self.inbox)
            if self.inbox and waiting + len(chunk.samples) > most and not chunk.end:
                raise Unavailable(
                    f"stream {self.id}: {waiting / SAMPLE_RATE:.1f} s of audio wait already, max_pending_s "
                    f"allows {most / SAMPLE_RATE:g} s; wait for answers before sending more"
                )
            self.inbox.append((chunk, sink))
            return not self.answering and self.owed is None and len(self.inbox) == 1

    def late(self, now: float) -> float:
        """Seconds that a window of it waits, or by which it is heard later than it is spoken."""
        if self.error:
            return 0.0
        wait = 0.0 if self.due is None else now - self.due
        spoken = min(self.received_s, now - self.began)  # what came before its time was not spoken live
        return max(wait, 0.0 if self.hasty else spoken - self.heard_s)

    def owed_all(self) -> list[Sink]:
        """(locked) Every answer that is owed, taken away."""
        sinks = [*([self.owed] if self.owed else []), *(sink for _, sink in self.inbox)]
        self.owed = None
        self.inbox.clear()
        return sinks


class StreamTable:
    """Open streams by correlation id, and those that ended but still owe their last words."""

    def __init__(
        self,
        *,
        max_streams: int,
        refuse_lag_s: float,
        idle_s: float,
        clock: Callable[[], float],
        metrics: SpeechMetrics,
    ) -> None:
        self._max_streams, self._refuse_lag_s, self._idle_s = max_streams, refuse_lag_s, idle_s
        self._clock = clock
        self._metrics = metrics
        self._lock = threading.Lock()
        self._open: dict[int, LiveStream] = {}
        self._ending: set[LiveStream] = set()

    def __len__(self) -> int:
        return len(self._open) + len(self._ending)

    def admit(self, number: int, make: Callable[[], LiveSession]) -> LiveStream:
        """A new stream under `number`.

        Raises:
            Unavailable: as many are open as are allowed, or the recogniser is too far behind.
        """
        with self._lock:
            try:
                self._check_room()
            except Unavailable:
                self._metrics.streams["refused"].increment(1)
                raise
            now = self._clock()
            stream = LiveStream(number, make(), began=now, seen=now)
            self._open[number] = stream
            self._metrics.active_streams.set(len(self))
        return stream

    def _check_room(self) -> None:
        if len(self) >= self._max_streams:
            raise Unavailable(
                f"speech: {len(self)} streams are open, as many as max_streams allows; try again later"
            )
        now = self._clock()
        streams = (*self._open.values(), *self._ending)
        # A window's wait alone would not do: a stream may get each window soon enough, and too few of them.
        behind = max((stream.late(now) for stream in streams), default=0.0)
        if behind > self._refuse_lag_s:
            raise Unavailable(
                f"speech: open streams are heard {behind:.1f} s late, more than refuse_lag_s "
                f"({self._refuse_lag_s:g} s); try again later"
            )

    def find(self, number: int) -> LiveStream:
        """The open stream of that number.

        Raises:
            InvalidArgument: there is none.
        """
        stream = self._open.get(number)
        if stream is None:
            raise InvalidArgument(
                f"stream {number} is not open: its start was refused, it failed, or nothing came for "
                f"{self._idle_s:g} s; begin with START"
            )
        return stream

    def get(self, number: int) -> LiveStream | None:
        """The open stream of that number, if there is one."""
        return self._open.get(number)

    def all(self) -> list[LiveStream]:
        """Every stream that is open or ending."""
        with self._lock:
            return [*self._open.values(), *self._ending]

    def end(self, stream: LiveStream) -> None:
        """Its last audio is in: the number is free for another stream, the words are still to come."""
        with self._lock:
            if self._open.get(stream.id) is stream:
                del self._open[stream.id]
                self._ending.add(stream)

    def forget(self, stream: LiveStream, outcome: str) -> None:
        """Takes a stream out of the table, once; what is heard for it later is thrown away."""
        with self._lock:
            if stream.closed:
                return
            stream.closed = True
            if self._open.get(stream.id) is stream:
                del self._open[stream.id]
            self._ending.discard(stream)
            self._metrics.active_streams.set(len(self))
        self._metrics.streams[outcome].increment(1)

    def touch(self, stream: LiveStream) -> None:
        """Its client was heard or answered just now."""
        with self._lock:
            stream.seen = self._clock()

    def silent(self) -> Iterable[LiveStream]:
        """Streams whose client sent nothing for longer than the limit, and is not waiting for an answer."""
        with self._lock:
            limit = self._clock() - self._idle_s
            return [s for s in self._open.values() if s.seen < limit and not (s.owed or s.inbox)]

    def order(self, stream: LiveStream) -> bool:
        """Whether a look at the stream's windows must be queued; it then counts as waiting."""
        with self._lock:
            if stream.queued or stream.closed:
                return False
            stream.queued = True
            if stream.due is None:
                stream.due = self._clock()
            return True

    def looked(self, stream: LiveStream) -> float:
        """The ordered look is taken now: since when the stream waits. New audio orders another one."""
        with self._lock:
            stream.queued = False
            return self._clock() if stream.due is None else stream.due

    def progressed(self, stream: LiveStream) -> None:
        """(its lock is held) Takes note of how far it is heard."""
        received_s, behind_s = stream.session.received_s, stream.session.behind_s
        with self._lock:
            stream.received_s, stream.heard_s = received_s, received_s - behind_s
            stream.hasty |= received_s > self._clock() - stream.began + MAX_CHUNK_S

    def heard(self, stream: LiveStream) -> None:
        """Nothing of it waits any more."""
        with self._lock:
            stream.due = None
