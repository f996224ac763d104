"""The llm model's whole behaviour behind two calls: submit a request, and close.

Request path: read → admit → queue → engine → text → courier → sink. The service owns
the queue and the streams; the engine's process owns the batch. It does not know
Triton: the glue gives it tensors, a sink per request and a metric factory.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable

from trimodal.errors import Cancelled, InternalError, RequestError, Unavailable
from trimodal.llm.admission import Admission
from trimodal.llm.core import Stepped
from trimodal.llm.courier import Courier
from trimodal.llm.detokenize import TextStream
from trimodal.llm.engine import EngineInfo, EngineRequest, EngineStats, Output
from trimodal.llm.link import EngineLink, start_process
from trimodal.llm.metrics import LlmMetrics
from trimodal.llm.request import GenerationRequest
from trimodal.llm.restarts import Restarts
from trimodal.llm.settings import LlmSettings
from trimodal.llm.stream import Sink, Stream
from trimodal.llm.tokenizer import ByteTokenizer, CheckpointTokenizer


class LlmService:
    """Admits, queues, streams and cancels the requests of one model.

    Args:
        settings: the model's parameters.
        metrics: where to count.
        start: opens the engine; another one is for tests.

    Raises:
        OperatorError: the engine or its tokenizer could not be opened.
    """

    def __init__(
        self,
        settings: LlmSettings,
        metrics: LlmMetrics,
        start: Callable[[LlmSettings], EngineLink] = start_process,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._start = start
        self._tokenizer: ByteTokenizer | CheckpointTokenizer = (
            ByteTokenizer() if settings.engine == "fake" else CheckpointTokenizer(settings.artefact_directory)
        )
        self._lock = threading.RLock()
        self._ids = itertools.count(1)
        self._waiting: deque[Stream] = deque()
        self._running: dict[int, Stream] = {}
        self._closing = threading.Event()
        self._restarts = Restarts()
        self._absence = "the engine is being restarted; try again later"
        self._stats = EngineStats()
        self._link: EngineLink | None = start(settings)
        self.info: EngineInfo = self._link.info
        self._admission = Admission(settings, self.info)
        self._courier = Courier(settings.senders, self._lock, metrics.delivered, self._unsent)
        self._link.start(self._stepped, self._lost)
        self._watch = threading.Thread(target=self._watch_clients, name="llm-watch", daemon=True)
        self._watch.start()

    def submit(self, request: GenerationRequest, sink: Sink) -> None:
        """Takes a request in; its answer goes to `sink`, from other threads.

        Raises:
            RequestError: it is refused; `sink` is not called.
        """
        with self._metrics.refusals():
            self._check_open()
            stream = self._read(request, sink)
            with self._lock:
                # Asked in the same breath: a stream that joins after close() would never get an end.
                self._check_open()
                if self._waiting or not self._admission.fits(len(stream.prompt_ids), stream.max_tokens):
                    self._admission.check_queue(len(self._waiting))
                self._waiting.append(stream)
                self._changed()

    def close(self, timeout: float = 10.0) -> None:
        """Fails what is left with UNAVAILABLE, ends the engine and all threads."""
        self._closing.set()
        with self._lock:
            for stream in [*self._waiting, *self._running.values()]:
                self._fail(stream, Unavailable("the server is shutting down"))
            link, self._link = self._link, None
        if link:
            link.close()
        self._courier.close(timeout)
        self._watch.join(timeout)

    @property
    def stats(self) -> EngineStats:
        """The engine's last snapshot."""
        return self._stats

    @property
    def counts(self) -> tuple[int, int, int]:
        """Running requests, waiting requests, reserved KV blocks."""
        with self._lock:
            return len(self._running), len(self._waiting), self._admission.reserved_blocks

    def _read(self, request: GenerationRequest, sink: Sink) -> Stream:
        arrived = time.perf_counter()
        prompt_ids = request.token_ids(self._tokenizer, self._settings.apply_chat_template)
        request = request.within(self._admission.room(len(prompt_ids)))
        self._admission.check_size(len(prompt_ids), request.sampling.max_tokens)
        text = TextStream(self._tokenizer, request.stops)
        stream = Stream(next(self._ids), request, prompt_ids, text, sink)
        stream.arrived = arrived
        return stream

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise Unavailable("the server is shutting down")
        if self._link is None:
            raise Unavailable(self._absence)

    def _changed(self) -> None:
        """Requests came or went: hands over what fits now, and shows the new state."""
        self._dispatch()
        self._metrics.state(len(self._running), len(self._waiting), self._stats)

    def _dispatch(self) -> None:
        """Hands waiting requests to the engine, in order of arrival, while they fit."""
        while self._waiting and self._link:
            stream = self._waiting[0]
            if not self._admission.reserve(stream.id, len(stream.prompt_ids), stream.max_tokens):
                if self._running:
                    return
                # All is free: an engine that was opened anew holds less than the one that took it in.
                self._fail(stream, Unavailable("the engine was opened anew with less memory than this needs"))
                continue
            self._waiting.popleft()
            self._running[stream.id] = stream
            stream.started = time.perf_counter()
            self._link.add(EngineRequest(stream.id, stream.prompt_ids, stream.request.sampling))

    def _stepped(self, stepped: Stepped) -> None:
        with self._lock:
            self._stats = stepped.stats
            for output in stepped.outputs:
                stream = self._running.get(output.id)
                if stream is None:
                    continue  # cancelled while this step ran
                try:
                    self._take(stream, output)
                except Exception:
                    # Left to itself this would end the engine's reader, and every request with it.
                    traceback.print_exc(file=sys.stderr)
                    self._fail(stream, InternalError("the model failed on this request"))
            self._changed()

    def _take(self, stream: Stream, output: Output) -> None:
        stream.cached_tokens = output.cached_tokens
        if output.finish_reason == "error":
            self._fail(stream, InternalError(output.error))
            return
        if stream.push(output.token_ids, output.finish_reason):
            self._leave(stream, still_in_engine=output.finish_reason is None)
        self._courier.notify(stream)

    def _leave(self, stream: Stream, *, still_in_engine: bool) -> None:
        if self._running.pop(stream.id, None):
            self._admission.release(stream.id)
            if still_in_engine and self._link:
                self._link.cancel(stream.id)
        else:
            self._waiting.remove(stream)

    def _fail(self, stream: Stream, error: RequestError) -> None:
        self._leave(stream, still_in_engine=True)
        stream.fail(error)
        self._courier.notify(stream)

    def _unsent(self, stream: Stream) -> None:
        """Part of an answer could not be handed on: what would follow is not the answer any more."""
        with self._lock:
            if not stream.ended:
                self._leave(stream, still_in_engine=True)
                self._changed()
            stream.fail(InternalError("the answer could not be sent; send the request again"))

    def _watch_clients(self) -> None:
        """Looks for clients that cancelled or left, wherever their request is."""
        while not self._closing.wait(self._settings.cancel_poll_ms / 1e3):
            with self._lock:
                streams = [*self._waiting, *self._running.values()]
            gone = [stream for stream in streams if stream.client_left()]
            with self._lock:
                for stream in gone:
                    if not stream.ended:
                        self._fail(stream, Cancelled("the client cancelled the request"))
                if gone:
                    self._changed()

    def _lost(self) -> None:
        """The engine's process died: its requests fail, those that wait stay, a new engine is opened."""
        with self._lock:
            if self._closing.is_set():
                return
            self._link = None
            self._stats = EngineStats()
            for stream in list(self._running.values()):
                self._fail(stream, InternalError("the engine stopped unexpectedly; send the request again"))
            self._changed()
        while self._may_restart():
            try:
                link = self._start(self._settings)
            except Exception as error:
                print(f"trimodal: the engine did not open again: {error}", file=sys.stderr, flush=True)
                continue
            with self._lock:
                if not self._closing.is_set():
                    self._link, self.info = link, link.info
                    self._admission = Admission(self._settings, self.info)  # nothing is left in the old one
                    link.start(self._stepped, self._lost)
                    self._changed()
                    return
            link.close()  # closed in the meantime: nobody else knows this engine

    def _may_restart(self) -> bool:
        """Counts a loss; False when the service closes, or gives up after too many in a short time."""
        with self._lock:
            another = self._restarts.another()
            if self._closing.is_set():
                return False
            self._metrics.restarts.increment(1)
            if another:
                return True
            print("trimodal: the engine keeps dying; not started again", file=sys.stderr, flush=True)
            self._absence = "the engine keeps failing; the operator must look at it"
            for stream in list(self._waiting):
                self._fail(stream, Unavailable(self._absence))
            self._changed()
            return False
