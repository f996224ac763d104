"""Holds one live stream behind its lock; each call returns what its owner has to do next."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from trimodal.audio.values import SAMPLE_RATE
from trimodal.errors import InvalidArgument, RequestError, Unavailable
from trimodal.speech.live.metrics import SpeechMetrics
from trimodal.speech.live.request import Chunk
from trimodal.speech.session.session import LiveSession, PlannedWindow, Update
from trimodal.speech.values import Recognition
from trimodal.trace import Span, span

# A request for news is answered by then, also without any: a server that goes down waits for it.
NEWS_S = 5.0
# Windows are heard in the order in which they became due; last words come before partial ones that are due
# since less than PARTIAL_S before them, and all before recordings.
PARTIAL_S, RECORDING_S = 0.5, 2.0
# A network may hold a microphone's audio up and hand it over at once, but not before it was spoken.
AHEAD_S = 1.0

Outcome = Literal["finished", "failed", "idle", "restarted", "left"]


class Sink(Protocol):
    """Where the one answer of a request goes; exactly one of the two is called, once, from any thread."""

    def answer(self, update: Update, *, final: bool) -> None: ...

    def fail(self, error: RequestError) -> None: ...

    def is_cancelled(self) -> bool:
        """Whether its client has given up or gone; asked before the answer."""


@dataclass(frozen=True, slots=True)
class TakeIn:
    """Have a listener call `take_in`: the next chunk's turn has come."""


@dataclass(frozen=True, slots=True)
class Recognise:
    """Have a window thread call `next_windows` and then `heard` or `fail`: a window is due."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Give `update` to `sink`, then call `answered`. With `final` the stream is over."""

    sink: Sink
    update: Update
    final: bool


@dataclass(frozen=True, slots=True)
class Fail:
    """Tell each of `sinks` the error: the stream is over."""

    sinks: tuple[Sink, ...]
    error: RequestError


Action = TakeIn | Recognise | Answer | Fail


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a stream is heard; replaced as a whole, so it may be read without the lock.

    Attributes:
        received_s: audio taken in.
        heard_s: its part up to which no window is due.
        unheard_s: audio that is neither settled nor known to be silence.
        faster_than_realtime: audio arrives faster than it can be spoken (a file, not a microphone), so what
            is not heard yet does not count as overload.
    """

    received_s: float = 0.0
    heard_s: float = 0.0
    unheard_s: float = 0.0
    faster_than_realtime: bool = False


class LiveStream:
    """State of one stream. Every sink leaves it exactly once, under `_lock`, in an `Answer` or a `Fail`.

    Attributes:
        id: correlation id.
        recording: whether its client says that it was spoken before.
        progress, due, patience_s: for admission and the queue of windows, which read them without the lock.
            `due` is the time since when a window waits for a thread or for its words; None when no window
            does. It may be heard `patience_s` after those of others that wait as long.
    """

    # Guarded by `_lock`, which is held while audio is taken in and words are merged:
    #   _state             "ending" since its END came, "failed" once the recogniser gave up on it
    #   _error             why it failed or was closed
    #   _inbox             chunks that are not taken in: Triton hands a stream's chunks over as soon as the
    #                      client sends them, and they are taken in one by one, in order
    #   _pending           the chunk whose turn it is, with its sink; None when no response is due
    #   _in_turn           a chunk was taken in and its response is not out; the next chunk waits, or its
    #                      response might overtake
    #   _first_s           length of the first chunk: a microphone's audio is ahead of the clock by so much
    #   _expires           when the request for news whose turn it is gets an answer without any
    #   _audio_until       when the next audio is late: its client speaks, and sends nothing; inf once it was
    #   _spoken_from       when its audio began to be spoken, had there been no time without any
    #   _queued            a `Recognise` is on its way
    #   _voiced_s          speech already counted
    #   _seen              when its client last sent or got something
    #   _spans             what took how long; None: its client does not want to know
    #   _out               when the window that is out went
    #   _asked             when the recogniser was last asked for it

    def __init__(
        self,
        number: int,
        session: LiveSession,
        metrics: SpeechMetrics,
        *,
        max_waiting_s: float,
        quiet_s: float = math.inf,
        recording: bool = False,
        trace: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Opens it.

        Args:
            max_waiting_s: audio that may wait in the inbox.
            quiet_s: audio that is late by so much is taken for silence.
            recording: it comes as fast as it is taken.
            trace: the last answer has one.
        """
        self.id = number
        self.recording = recording
        self.progress = Progress(faster_than_realtime=recording)
        self.due: float | None = None
        self.patience_s = 0.0
        self._first_s = 0.0
        self._whole = False  # it was one chunk: it was spoken before
        self._session = session
        self._metrics = metrics
        self._max_waiting_s = max_waiting_s
        self._quiet_s = quiet_s
        self._clock = clock
        self._lock = threading.Lock()
        self._state: Literal["open", "ending", "failed", "closed"] = "open"
        self._error: RequestError | None = None
        self._inbox: deque[tuple[Chunk, Sink]] = deque()
        self._pending: tuple[Chunk, Sink] | None = None
        self._expires = self._audio_until = math.inf
        self._in_turn = False
        self._queued = False
        self._voiced_s = 0.0
        self._spans: list[Span] | None = [] if trace else None
        self._began = self._spoken_from = self._seen = self._out = self._asked = clock()

    @property
    def live(self) -> bool:
        """Whether it is sent while it is spoken: how late its words are tells of the server's load."""
        return not self.progress.faster_than_realtime

    @property
    def closed(self) -> bool:
        """Whether it is over: results that still come are dropped."""
        return self._state == "closed"

    @property
    def left(self) -> bool:
        """Whether its END came and nobody waits for the last words any more."""
        with self._lock:
            last = self._inbox[-1] if self._inbox else self._pending
            return self._state == "ending" and last is not None and last[1].is_cancelled()

    def put(self, chunk: Chunk, sink: Sink) -> list[Action]:
        """Takes a chunk into the inbox; an END always.

        Raises Unavailable: the client sent too far ahead of its answers; RequestError: why it is over.
        """
        with self._lock:
            if self._state in ("ending", "closed"):  # since it was found
                raise self._error or InvalidArgument(f"stream {self.id} is not open: its END came")
            # The first one's turn has come unless another chunk is in turn: a listener is about to take it.
            waiting = list(self._inbox)[0 if self._in_turn else 1 :]
            waiting_s = sum(len(other.samples) for other, _ in waiting) / SAMPLE_RATE
            more_s = len(chunk.samples) / SAMPLE_RATE
            if waiting and waiting_s + more_s > self._max_waiting_s and not chunk.end:
                raise Unavailable(
                    f"stream {self.id}: {waiting_s:.1f} s of audio wait already, max_pending_s "
                    f"allows {self._max_waiting_s:g} s; wait for answers before sending more"
                )
            self._inbox.append((chunk, sink))
            self._count_requests([chunk], 1)
            self._seen = self._clock()
            if len(chunk.samples):
                if math.isinf(self._audio_until):
                    self._spoken_from = self._seen - self._session.received_s
                self._audio_until = self._seen + more_s + self._quiet_s
            if chunk.end and self._state == "open":
                self._state = "ending"
            ready = self._waits_for_news if self._in_turn else len(self._inbox) == 1
            return [TakeIn()] if ready else []

    def take_in(self) -> list[Action]:
        """Takes the next chunk's audio in, or ends a wait for news; voice activity detection runs here."""
        with self._lock:
            if self._in_turn or not self._inbox:  # it was closed since
                return self._next_actions() if self._waits_for_news else []
            self._in_turn = True
            began = self._clock()
            chunk, _ = self._pending = self._inbox.popleft()
            self._expires = began + NEWS_S
            if chunk.after is None and self._state in ("open", "ending"):
                self._first_s = self._first_s or len(chunk.samples) / SAMPLE_RATE
                self._session.feed(chunk.samples)
                if chunk.end:
                    self._session.end()
                    self._whole = self._session.received_s == self._first_s
                self._note_progress()
                self._metrics.chunks["taken"].increment(1)
                self._metrics.received.increment(len(chunk.samples) / SAMPLE_RATE)
                # What was taken for speech may turn out to be silence: only the net gain is counted.
                voiced_s = max(0.0, self._session.speech_s - self._voiced_s)
                self._voiced_s += voiced_s
                self._metrics.voiced.increment(voiced_s)
            if self._spans is not None:
                self._spans.append(span("take audio in", began, self._clock()))
            return self._next_actions()

    def next_windows(self, most: int) -> list[PlannedWindow]:
        """The window that is due now, with all audio until now; none when none is due any more.

        Args:
            most: so many with those behind it, where they are known.
        """
        with self._lock:
            self._queued = False
            self._out = self._asked = self._clock()
            return self._session.next_windows(most) if self._state in ("open", "ending") else []

    def sent(self) -> list[Action]:
        """What is ordered once its windows are out: an answer that waited for them to be."""
        with self._lock:
            return self._next_actions()

    def asks(self) -> None:
        """The recogniser is asked for the window that is out, perhaps again."""
        with self._lock:
            self._asked = self._clock()

    def silence(self, moved: float, back: float, longest_s: float, lost_s: float) -> float:
        """How long the recogniser, asked for its window, answered nobody; 0: not longer than `longest_s`.

        Args:
            moved: when any window last went to it or came back.
            back: when any last came back: it is slow, perhaps, and works.
            lost_s: while others come back this one may take so long.
        """
        with self._lock:
            if self.due is None or self._state not in ("open", "ending"):
                return 0.0
            now = self._clock()
            if not self._session.outstanding:
                silent_s = now - max(self.due, moved)
            elif now - self._asked > lost_s:
                return now - self._asked
            else:
                silent_s = now - max(self._asked, back)
            return silent_s if silent_s > longest_s else 0.0

    def heard(self, planned: Sequence[PlannedWindow], heard: Sequence[Recognition]) -> list[Action]:
        """Takes in what was heard in the windows that `next_windows` gave."""
        with self._lock:
            if self._state in ("failed", "closed"):
                return []
            back = self._clock()
            self._session.accept_windows(planned, heard)
            self._note_progress()
            if self._spans is not None:
                self._note_windows(planned, back)
            if self.due is not None and self.live:
                self._metrics.turnaround.observe(self._clock() - self.due)
            self.due = None
            return self._next_actions()

    def answered(self) -> list[Action]:
        """The answer that was ordered last is out."""
        with self._lock:
            self._in_turn = False
            self._seen = self._clock()
            return [TakeIn()] if self._inbox else []

    def fail(self, error: RequestError) -> list[Action]:
        """Ends it with an error: for the chunk that waits, else for the next one."""
        with self._lock:
            if self._state == "closed":
                return []
            self._state, self._error, self.due = "failed", error, None
            return self._next_actions()

    def close(self, outcome: Outcome, error: RequestError) -> list[Action]:
        """Ends it now, unless it is over; who waits for an answer is told `error`."""
        with self._lock:
            return self._close(outcome, error)

    def look(self, idle_s: float, error: RequestError) -> list[Action]:
        """Does what time brings: takes audio that is late for silence, gives an answer without news.

        Ends it if its client sent nothing for longer than `idle_s` and waits for no answer.
        """
        with self._lock:
            now = self._clock()
            if self._inbox or not (self._waits_for_news or not self._in_turn):
                return []
            if not self._in_turn and now - self._seen > idle_s:
                return self._close("idle", error)
            # Whoever sent ahead of time, as a file, may well wait.
            if now > max(self._audio_until, self._spoken_from + self._session.received_s):
                self._audio_until = math.inf
                self._session.pause()
                return self._next_actions()
            return self._next_actions() if now > self._expires else []

    def behind_s(self, now: float) -> float:
        """Seconds that a window of it waits, or by which it is heard later than it is spoken; 0 of a file."""
        progress, due = self.progress, self.due
        if self._state == "failed" or not self.live:
            return 0.0
        wait_s = 0.0 if due is None else now - due
        spoken_s = min(progress.received_s, now - self._began)  # what came before its time was not live
        return max(wait_s, spoken_s - progress.heard_s)

    # With the lock held

    def _next_actions(self) -> list[Action]:
        """The answer that is possible now, and a window's recognition if one is due."""
        if self._state == "failed" and self._error:
            return self._close("failed", self._error) if self._pending else []
        actions: list[Action] = []
        final = self._state == "ending" and not self._inbox
        if self._pending and not self._must_wait(self._pending[0], final):
            chunk, sink = self._pending
            self._pending = None
            if chunk.after is None:  # a client that waited for it speaks on from now
                self._audio_until = max(self._audio_until, self._clock() + self._quiet_s)
            actions.append(Answer(sink, self._update(final), final))
            self._count_requests([chunk], -1)
            if final:
                self._finish("finished")
                return actions
        if not self._session.waiting:
            self.due = None
        elif not self._session.outstanding:
            self.patience_s = self._patience_s()
            if not self._queued:
                self._queued, self.due = True, self._clock()
                actions.append(Recognise())
        return actions

    def _patience_s(self) -> float:
        if self.recording:
            return RECORDING_S
        return 0.0 if self._session.ends_turn or self._state == "ending" else PARTIAL_S

    def _update(self, final: bool) -> Update:
        update = self._session.take()
        return replace(update, trace=tuple(self._spans)) if final and self._spans else update

    def _note_windows(self, planned: Sequence[PlannedWindow], heard: float) -> None:
        assert self._spans is not None
        audio_s = (planned[-1].end - planned[0].start) / SAMPLE_RATE
        if self.due is not None:
            self._spans.append(span("window waits", self.due, self._out))
        self._spans.append(span("window", self._out, heard, audio_s=audio_s))
        self._spans.append(span("take words in", heard, self._clock()))

    @property
    def _waits_for_news(self) -> bool:
        return self._pending is not None and self._pending[0].after is not None

    def _must_wait(self, chunk: Chunk, final: bool) -> bool:
        """The last answer waits for all words; the others only while too much waits for a window.

        A request for news waits for some, or for audio: the next chunk's, or what its client does not know
        of, as that chunk overtook it on the way.
        """
        session = self._session
        if chunk.after is not None:
            since = round(session.received_s * SAMPLE_RATE) > chunk.after
            return not (self._inbox or session.has_news or since or self._clock() > self._expires)
        # Where no window is on its way only more audio helps.
        # Of a recording the next windows are to be here when those at the recogniser are heard.
        ahead = self.recording and session.max_pending_s
        waits_s = session.unsent_s if ahead else session.pending_s
        return session.waiting and (final or waits_s > session.max_pending_s)

    def _close(self, outcome: Outcome, error: RequestError) -> list[Action]:
        if self._state == "closed":
            return []
        self._error = error
        self._finish(outcome)
        pending = [self._pending] if self._pending else []
        requests = (*pending, *self._inbox)
        self._pending = None
        self._inbox.clear()
        self._count_requests([chunk for chunk, _ in requests], -1)
        return [Fail(tuple(sink for _, sink in requests), error)]

    def _count_requests(self, chunks: Sequence[Chunk], sign: int) -> None:
        """Counts what a drain waits for: not the requests for news, of which a client always has one."""
        self._metrics.active_requests.increment(sign * sum(chunk.after is None for chunk in chunks))

    def _finish(self, outcome: Outcome) -> None:
        self._state, self.due = "closed", None
        self._metrics.streams[outcome].increment(1)

    def _note_progress(self) -> None:
        session, received_s = self._session, self._session.received_s
        later_s = received_s - self._first_s
        ahead = self._whole or later_s > self._clock() - self._began + AHEAD_S
        self.progress = Progress(
            received_s,
            received_s - session.behind_s,
            session.pending_s,
            self.progress.faster_than_realtime or ahead,
        )
