"""The speech model's whole behaviour behind two calls: submit a chunk, and close.

Chunks are taken in by a few listener threads (activity detection runs there) and
answered at once. Windows that become due go to the recogniser from threads of their
own, one a stream at a time, many streams at once, so that Triton gathers them into
batches. A stream whose audio comes faster than it is heard gets its answers later:
that is what bounds memory. What is cut into which window is the session's affair.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from trimodal.errors import Cancelled, InternalError, InvalidArgument, RequestError, Unavailable
from trimodal.glue import as_request_error
from trimodal.speech.metrics import SpeechMetrics
from trimodal.speech.request import Chunk
from trimodal.speech.session import LiveSession, PlannedWindow
from trimodal.speech.settings import SpeechSettings
from trimodal.speech.stream import LiveStream, Sink, StreamTable
from trimodal.speech.vad import SpeechDetector
from trimodal.speech.values import SAMPLE_RATE, Recognition, Window

LISTENERS = 2
MAX_FAILURES = 3  # of the recogniser on one stream, in a row
BACKOFF_S = 0.2
UNLOADING = "speech is being unloaded; start the stream again later"

Recognizer = Callable[[Window], Recognition]


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
        self._recognize = recognize
        self._detector = detector
        self._metrics = metrics
        self._clock = clock
        self._table = StreamTable(
            max_streams=settings.max_streams,
            refuse_lag_s=settings.refuse_lag_s,
            idle_s=idle_s,
            clock=clock,
            metrics=metrics,
        )
        self._lock = threading.Lock()  # of the two counts
        self._unanswered = self._in_flight = 0
        self._ready: queue.SimpleQueue[LiveStream | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._listeners = ThreadPoolExecutor(LISTENERS, thread_name_prefix="listener")
        sweep_s = min(idle_s / 4, 5.0)
        self._threads = [threading.Thread(target=self._sweep, args=(sweep_s,), name="sweeper", daemon=True)]
        for number in range(settings.max_windows_in_flight):
            self._threads.append(threading.Thread(target=self._hear, name=f"window-{number}", daemon=True))
        for thread in self._threads:
            thread.start()

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
        self._count(unanswered=+1)
        if first:
            self._attend(stream)

    def refuse(self, sink: Sink, error: RequestError, *, ended: int | None = None) -> None:
        """Answers a request that is not taken. `ended`: a stream that Triton takes for over with it."""
        self._metrics.chunks["refused"].increment(1)
        stream = self._table.get(ended) if ended is not None else None
        if stream:
            self._drop(stream, "failed", error)
        sink.fail(error)

    def close(self) -> None:
        """Ends all threads; answers that are owed become UNAVAILABLE."""
        self._closing.set()
        self._listeners.shutdown(wait=True)
        for stream in self._table.all():
            self._drop(stream, "failed", Unavailable(UNLOADING))
        for _ in self._threads:
            self._ready.put(None)
        for thread in self._threads:
            thread.join(5.0)

    # Audio in, answers out

    def _session(self, chunk: Chunk) -> LiveSession:
        settings, options = self._settings, chunk.options
        if options.step_s is not None:
            widest = max(options.step_s, settings.max_step_s)
            settings = settings.model_copy(update={"step_s": options.step_s, "max_step_s": widest})
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
                if stream.owed or not stream.inbox:
                    return
                chunk, stream.owed = stream.inbox.popleft()
                if not (stream.closed or stream.error):
                    stream.session.feed(chunk.samples)
                    if chunk.end:
                        stream.ending = True
                        stream.session.end()
                    # What was taken for speech may turn out to be silence: only the net gain is counted.
                    voiced_s = max(0.0, stream.session.speech_s - stream.voiced_s)
                    stream.voiced_s += voiced_s
                    self._metrics.chunks["taken"].increment(1)
                    self._metrics.received.increment(len(chunk.samples) / SAMPLE_RATE)
                    self._metrics.voiced.increment(voiced_s)
            self._settle(stream)
            self._wake(stream)
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
                if not session.finished if ending else session.pending_s > self._settings.max_pending_s:
                    return
                stream.owed = None
                update, more = session.take(), bool(stream.inbox)
        if failed:
            self._drop(stream, "failed", failed)
            return
        if ending:
            self._table.forget(stream, "finished")
        self._table.touch(stream)
        self._count(unanswered=-1)
        sink.answer(update, final=ending)
        if more:
            self._attend(stream)

    def _drop(self, stream: LiveStream, outcome: str, error: RequestError) -> None:
        """Ends a stream now; answers that are owed become `error`."""
        self._table.forget(stream, outcome)
        with stream.lock:
            sinks = stream.owed_all()
        self._count(unanswered=-len(sinks))
        for sink in sinks:
            sink.fail(error)

    # Windows to the recogniser and back

    def _wake(self, stream: LiveStream) -> None:
        """Has a thread look whether a window is due. Cheap, and harmless when none is."""
        if self._table.order(stream):
            self._ready.put(stream)

    def _hear(self) -> None:
        while (stream := self._ready.get()) is not None and not self._closing.is_set():
            due = self._table.looked(stream)
            try:
                with stream.lock:
                    gone = stream.closed or stream.error
                    planned = None if gone else stream.session.next_window()
                    waiting = stream.session.outstanding
                if planned:
                    self._hear_one(stream, planned, due)
                elif not waiting:
                    self._table.heard(stream)
            except Exception as error:
                self._give_up(stream, as_request_error(error))

    def _hear_one(self, stream: LiveStream, planned: PlannedWindow, due: float) -> None:
        self._count(in_flight=+1)
        try:
            heard = self._recognize(planned.window)
        except Exception as error:
            self._missed(stream, planned, as_request_error(error))
            return
        finally:
            self._count(in_flight=-1)
        with stream.lock:
            stream.failures = 0
            words = stream.session.accept(planned, heard)
            received_s = stream.session.received_s
        for word in words:
            self._metrics.lag.observe(received_s - word.end)
        self._metrics.turnaround.observe(self._clock() - due)
        self._table.heard(stream)
        self._settle(stream)
        self._wake(stream)

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
            self._closing.wait(BACKOFF_S * failures)
            self._wake(stream)

    def _give_up(self, stream: LiveStream, error: RequestError) -> None:
        """Nothing more is heard of a stream; the answer that is owed, or its next chunk, says why."""
        with stream.lock:
            stream.error = error
        self._table.heard(stream)
        self._settle(stream)

    def _count(self, *, unanswered: int = 0, in_flight: int = 0) -> None:
        with self._lock:
            self._unanswered += unanswered
            self._in_flight += in_flight
            self._metrics.active_requests.set(self._unanswered)
            self._metrics.windows_in_flight.set(self._in_flight)

    # Streams whose client went away

    def _sweep(self, period_s: float) -> None:
        while not self._closing.wait(period_s):
            for stream in self._table.silent():
                self._drop(stream, "idle", Unavailable("nothing came for longer than the idle limit"))
