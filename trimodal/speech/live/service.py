"""The speech model's whole behaviour behind two calls: submit a chunk, and close.

Chunks are taken in by a few listener threads (activity detection runs there) and
answered at once; windows that become due are carried to the recogniser meanwhile.
A stream whose audio comes faster than it is heard gets its answers later:
that is what bounds memory. What is cut into which window is the session's affair.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from trimodal.audio.values import SAMPLE_RATE
from trimodal.errors import Cancelled, InternalError, RequestError, Unavailable, as_request_error
from trimodal.speech.live.metrics import SpeechMetrics
from trimodal.speech.live.request import Chunk
from trimodal.speech.live.streams import LiveStream, Sink, StreamTable
from trimodal.speech.live.window_dispatcher import Recognizer, WindowCarrier
from trimodal.speech.session.session import LiveSession
from trimodal.speech.session.vad import SpeechDetector
from trimodal.speech.settings import SpeechSettings

LISTENERS = 2
UNLOADING = "speech is being unloaded; start the stream again later"


class SpeechService:
    """All open streams. Threads: the caller's, listeners, one for each window in flight, a sweeper."""

    def __init__(
        self,
        settings: SpeechSettings,
        recognize: Recognizer,
        detector: Callable[[], SpeechDetector],
        metrics: SpeechMetrics,
        *,
        idle_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._detector = detector
        self._metrics = metrics
        self._table = StreamTable(
            max_streams=settings.max_streams,
            refuse_lag_s=settings.refuse_lag_s,
            idle_s=idle_s,
            clock=clock,
            metrics=metrics,
        )
        self._windows = WindowCarrier(
            recognize,
            self._table,
            metrics,
            at_once=settings.max_windows_in_flight,
            clock=clock,
            settle=self._settle,
        )
        self._lock = threading.Lock()  # of the count
        self._unanswered = 0
        self._closing = threading.Event()
        self._listeners = ThreadPoolExecutor(LISTENERS, thread_name_prefix="listener")
        period_s = min(idle_s / 4, 5.0)
        self._sweeper = threading.Thread(target=self._sweep, args=(period_s,), name="sweeper", daemon=True)
        self._sweeper.start()

    @property
    def open_streams(self) -> int:
        """Streams that are open or still owe their last words."""
        return len(self._table)

    def submit(self, chunk: Chunk, sink: Sink) -> None:
        """Takes a chunk in; `sink` gets one answer: at once, or at a stream's end when all is heard."""
        try:
            if self._closing.is_set():
                raise Unavailable(UNLOADING)
            if chunk.start:
                self._restart(chunk.stream)
                stream = self._table.admit(chunk.stream, lambda: self._session(chunk))
            else:
                stream = self._table.find(chunk.stream)
            first = stream.put(chunk, sink, round(self._settings.max_pending_s * SAMPLE_RATE))
        except RequestError as error:
            self.refuse(sink, error)
            return
        if chunk.end:  # from now on the number may be another stream's
            self._table.end(stream)
        self._table.touch(stream)
        self._count(1)
        if first:
            self._attend(stream)

    def refuse(self, sink: Sink, error: RequestError, *, ended: int | None = None) -> None:
        """Answers a request that is not taken. `ended`: a stream that Triton takes for over with it."""
        self._metrics.chunks["refused"].increment(1)
        stream = self._table.get(ended) if ended is not None else None
        if stream:
            self._drop(stream, "failed", error)
        self._fail(sink, error)

    def close(self) -> None:
        """Ends all threads; answers that are owed become UNAVAILABLE."""
        self._closing.set()
        self._listeners.shutdown(wait=True)
        for stream in self._table.all():
            self._drop(stream, "failed", Unavailable(UNLOADING))
        self._windows.close()
        self._sweeper.join(5.0)

    # Audio in, answers out

    def _session(self, chunk: Chunk) -> LiveSession:
        settings, options = self._settings, chunk.options
        if options.step_s is not None:
            widest = max(options.step_s, settings.max_step_s)
            settings = settings.model_copy(update={"step_s": options.step_s, "max_step_s": widest})
        if options.max_pending_s is not None:
            least = min(options.max_pending_s, settings.max_pending_s)
            settings = settings.model_copy(update={"max_pending_s": least})
        return LiveSession(
            settings,
            policy=options.policy or settings.policy,
            language=options.language,
            prompt=options.prompt,
            detector=self._detector(),
        )

    def _restart(self, number: int) -> None:
        stream = self._table.get(number)
        if stream:
            self._drop(stream, "restarted", Cancelled(f"stream {number} was started anew"))

    def _attend(self, stream: LiveStream) -> None:
        with contextlib.suppress(RuntimeError):  # the pool was shut down: close() answers what waits
            self._listeners.submit(self._listen, stream)

    def _listen(self, stream: LiveStream) -> None:
        """Takes the next chunk in, once the one before it is answered."""
        try:
            with stream.lock:
                if stream.answering or stream.owed or not stream.inbox:
                    return
                chunk, stream.owed = stream.inbox.popleft()
                if not (stream.closed or stream.error):
                    stream.session.feed(chunk.samples)
                    if chunk.end:
                        stream.ending = True
                        stream.session.end()
                    self._table.progressed(stream)
                    # What was taken for speech may turn out to be silence: only the net gain is counted.
                    voiced_s = max(0.0, stream.session.speech_s - stream.voiced_s)
                    stream.voiced_s += voiced_s
                    self._metrics.chunks["taken"].increment(1)
                    self._metrics.received.increment(len(chunk.samples) / SAMPLE_RATE)
                    self._metrics.voiced.increment(voiced_s)
            self._settle(stream)
            self._windows.wake(stream)
        except Exception as error:
            self._drop(stream, "failed", as_request_error(error))

    def _settle(self, stream: LiveStream) -> None:
        """Gives the answer that is owed, unless it has to wait."""
        with stream.lock:
            sink, session, ending = stream.owed, stream.session, stream.ending
            if sink is None:
                return
            failed = stream.error or (InternalError("the stream was dropped") if stream.closed else None)
            if failed is None:
                if not session.finished if ending else self._too_far_behind(session):
                    return
                stream.owed, stream.answering = None, True
                update = session.take()
        if failed:
            self._drop(stream, "failed", failed)
            return
        if ending:
            self._table.forget(stream, "finished")
        self._table.touch(stream)
        self._count(-1)
        for word in update.committed:
            self._metrics.lag.observe(update.received_s - word.end)
        try:
            sink.answer(update, final=ending)
        except Exception as error:  # its words would be missing: the stream is over
            told = as_request_error(error)
            self._fail(sink, told)
            self._drop(stream, "failed", told)
        with stream.lock:
            stream.answering = False
            more = bool(stream.inbox)
        if more:
            self._attend(stream)

    @staticmethod
    def _too_far_behind(session: LiveSession) -> bool:
        """Whether more is pending than may be, and a window is on its way: else only more audio helps."""
        return session.waiting and session.pending_s > session.max_pending_s

    def _drop(self, stream: LiveStream, outcome: str, error: RequestError) -> None:
        """Ends a stream now; answers that are owed become `error`."""
        self._table.forget(stream, outcome)
        with stream.lock:
            sinks = stream.owed_all()
        self._count(-len(sinks))
        for sink in sinks:
            self._fail(sink, error)

    @staticmethod
    def _fail(sink: Sink, error: RequestError) -> None:
        try:
            sink.fail(error)
        except Exception as defect:  # only logged: others wait for their answers, and threads must live
            as_request_error(defect)

    def _count(self, unanswered: int) -> None:
        with self._lock:
            self._unanswered += unanswered
            self._metrics.active_requests.set(self._unanswered)

    # Streams whose client went away

    def _sweep(self, period_s: float) -> None:
        while not self._closing.wait(period_s):
            for stream in self._table.silent():
                self._drop(stream, "idle", Unavailable("nothing came for longer than the idle limit"))
