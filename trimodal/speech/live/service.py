"""Answers the chunks of many live streams while their windows are recognised.

A chunk is answered as soon as it is taken in; windows that become due are recognised meanwhile. The
answers of a stream whose audio comes faster than it is heard wait, which bounds its memory.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue

from trimodal.audio.values import SAMPLE_RATE
from trimodal.errors import Cancelled, InvalidArgument, RequestError, Unavailable, as_request_error
from trimodal.speech.live.metrics import SpeechMetrics
from trimodal.speech.live.request import RECORDED_WINDOWS, Chunk, StreamOptions
from trimodal.speech.live.stream import Action, Answer, Fail, LiveStream, Recognise, Sink, TakeIn
from trimodal.speech.live.table import StreamTable
from trimodal.speech.live.windows import WindowQueue
from trimodal.speech.session.session import LiveSession
from trimodal.speech.session.vad import SpeechDetector
from trimodal.speech.settings import SpeechSettings, VoiceActivity
from trimodal.speech.values import Recognition, Window

LISTENERS = 2
LOOK_S = 0.05  # the last words of a muted microphone wait for half of it on average
# Of the recogniser on one window, in a row: five seconds of it, then the stream fails. Nothing is skipped.
MAX_FAILURES = 8
BACKOFF_S, MAX_BACKOFF_S = 0.2, 1.0
# A recogniser that answers nobody for longer never will; a client (Timeouts.silence) waits so long, too.
HUNG_S = 60.0
# A call that takes longer is lost, whatever comes of the others: so long a client waits for its last words.
LOST_S = 460.0
JOIN_S = 5.0
LEFT = "the client left"
UNLOADING = "speech is being unloaded; start the stream again later"

Recogniser = Callable[[Sequence[Window]], Sequence[Recognition]]
logger = logging.getLogger(__name__)


class SpeechService:
    """Performs what the streams order, on `LISTENERS` threads that take audio in, one thread for each
    window in flight, and one that looks at the clock for streams whose client sends nothing.

    Calls of the recogniser block, so that windows of different streams wait there together and are
    gathered into batches.
    """

    def __init__(
        self,
        settings: SpeechSettings,
        recogniser: Recogniser,
        detector: Callable[[VoiceActivity], SpeechDetector],
        metrics: SpeechMetrics,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._recogniser = recogniser
        self._detector = detector
        self._metrics = metrics
        self._clock = clock
        self._windows: WindowQueue[LiveStream] = WindowQueue(settings.max_windows_in_flight, clock)
        self._table = StreamTable(settings, metrics, clock=clock)
        self._closing = threading.Event()
        self._to_take_in: SimpleQueue[LiveStream | None] = SimpleQueue()
        runs = [
            *((f"listener-{n}", self._take_in_all) for n in range(LISTENERS)),
            *((f"window-{n}", self._recognise_all) for n in range(settings.max_windows_in_flight)),
            ("sweeper", self._look_after_streams),
        ]
        # Daemons: a recogniser that never returns must not keep the process from ending.
        self._threads = [threading.Thread(target=run, name=name, daemon=True) for name, run in runs]
        for thread in self._threads:
            thread.start()

    def submit(self, chunk: Chunk, sink: Sink) -> None:
        """Takes a chunk in; `sink` gets one answer: at once, or at a stream's end when all is heard."""
        try:
            stream = self._start(chunk) if chunk.start else self._table.find(chunk.stream)
            actions = stream.put(chunk, sink)
        except RequestError as error:
            self.refuse(sink, error)
            return
        if chunk.end:  # from now on the number may be another stream's
            self._table.end(stream)
        self._perform(stream, actions)

    def refuse(self, sink: Sink, error: RequestError, *, ended: int | None = None) -> None:
        """Answers a request that is not taken. `ended`: a stream that is over with it."""
        self._metrics.chunks["refused"].increment(1)
        stream = self._table.get(ended) if ended is not None else None
        if stream:
            self._perform(stream, stream.close("failed", error))
        _fail(sink, error)

    def close(self) -> None:
        """Ends all threads; who waits for an answer is told UNAVAILABLE."""
        self._closing.set()
        error = Unavailable(UNLOADING)
        for stream in self._table.close(error):
            self._perform(stream, stream.close("failed", error))
        for _ in range(LISTENERS):
            self._to_take_in.put(None)
        self._windows.close()
        deadline = time.monotonic() + JOIN_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _start(self, chunk: Chunk) -> LiveStream:
        number = chunk.stream
        if before := self._table.get(number):
            error = Cancelled(f"stream {number} was started anew")
            self._perform(before, before.close("restarted", error))
            self._table.forget(before)  # also one that the sweeper has closed, and is about to take out
        settings = chunk.options.on(self._settings)
        stream = LiveStream(
            number,
            self._session(chunk.options, settings),
            self._metrics,
            max_waiting_s=self._settings.max_pending_s,
            quiet_s=2 * settings.min_silence_duration_ms / 1000,  # a pause later than one that is heard
            recording=chunk.options.recording,
            trace=chunk.options.trace,
            clock=self._clock,
        )
        self._table.admit(stream, self._windows.speed, again=chunk.options.admitted)
        return stream

    def _session(self, options: StreamOptions, settings: SpeechSettings) -> LiveSession:
        return LiveSession(
            settings,
            policy=options.policy or settings.policy,
            language=options.language,
            prompt=options.prompt,
            translate=options.task == "translate",
            temperature=options.temperature,
            detector=self._detector(settings),
        )

    def _perform(self, stream: LiveStream, actions: Iterable[Action]) -> None:
        """Does what a stream orders; every change of a stream ends here."""
        for action in actions:
            match action:
                case TakeIn():
                    self._to_take_in.put(stream)
                case Recognise():
                    self._windows.put(stream)
                case Answer():
                    self._answer(stream, action)
                case Fail():
                    self._table.forget(stream)
                    for sink in action.sinks:
                        _fail(sink, action.error)

    def _answer(self, stream: LiveStream, answer: Answer) -> None:
        if answer.final:
            self._table.forget(stream)
        for word in answer.update.committed if stream.live else ():
            self._metrics.lag.observe(answer.update.received_s - word.end)
        try:
            answer.sink.answer(answer.update, final=answer.final)
        except Exception as error:  # its words would be missing: the stream is over
            told = as_request_error(error)
            _fail(answer.sink, told)
            self._perform(stream, stream.close("failed", told))
        else:
            self._perform(stream, stream.answered())

    # What the threads do

    def _take_in_all(self) -> None:
        while stream := self._to_take_in.get():
            try:
                actions = stream.take_in()
            except Exception as error:
                actions = stream.fail(as_request_error(error))
            self._perform(stream, actions)

    def _recognise_all(self) -> None:
        while stream := self._windows.get():
            actions: list[Action] = []
            audio_s = 0.0
            try:
                if stream.left:
                    actions = stream.close("left", Cancelled(LEFT))
                # Only now, so that it holds all audio that came while it waited for a thread.
                elif planned := stream.next_windows(RECORDED_WINDOWS if self._table.only_recordings else 1):
                    self._perform(stream, stream.sent())
                    heard = self._recognise(stream, [one.window for one in planned])
                    samples = sum(len(one.window.samples) for one in planned[: len(heard)])
                    audio_s = samples / SAMPLE_RATE
                    actions = stream.heard(planned, heard)
            except Exception as error:
                actions = stream.fail(as_request_error(error))
            finally:
                self._windows.done(stream, audio_s)
            self._perform(stream, actions)

    def _recognise(self, stream: LiveStream, windows: Sequence[Window]) -> Sequence[Recognition]:
        """What is heard in windows; a recogniser that fails is tried again a little later, a few times.

        Of fewer where it refuses so many, as one with a max_batch_size of 1 does.

        Raises RequestError: a window is wrong, it failed too often or is not there for too long, or no
            client waits any more.
        """
        failures, since = 0, time.monotonic()
        while True:
            self._metrics.windows_in_flight.increment(len(windows))
            stream.asks()
            try:
                return self._recogniser(windows)
            except Exception as error:
                told = as_request_error(error)
            finally:
                self._metrics.windows_in_flight.increment(-len(windows))
            if isinstance(told, InvalidArgument):
                if len(windows) == 1:
                    raise told
                windows = windows[:-1]
                continue
            self._windows.forget()
            self._metrics.retries.increment(len(windows))
            failures += 1
            waited_s = time.monotonic() - since
            loading = isinstance(told, Unavailable) and waited_s < self._settings.recognizer_wait_s
            if failures >= MAX_FAILURES and not loading:
                raise told
            if self._closing.wait(min(BACKOFF_S * failures, MAX_BACKOFF_S)) or stream.closed:
                raise told

    def _look_after_streams(self) -> None:
        idle = Unavailable("nothing came for longer than the idle limit")
        hung_s = max(HUNG_S, self._settings.recognizer_wait_s)
        lost_s = max(LOST_S, hung_s)
        while not self._closing.wait(LOOK_S):
            for stream in self._table.streams():
                try:
                    actions = stream.look(self._settings.idle_s, idle)
                    silent_s = stream.silence(self._windows.moved, self._windows.back, hung_s, lost_s)
                    if silent_s:
                        self._windows.give_up(stream)
                        told = f"{self._settings.recognizer} has not answered for {silent_s:.0f} s"
                        actions += stream.fail(Unavailable(f"{told}; try again later"))
                except Exception as error:
                    actions = stream.fail(as_request_error(error))
                self._perform(stream, actions)


def _fail(sink: Sink, error: RequestError) -> None:
    try:
        sink.fail(error)
    except Exception:  # others wait for their answers, and threads must live
        logger.exception("an error could not be told to its client: %s", error)
