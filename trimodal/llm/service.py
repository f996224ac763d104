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
from collections import deque
from collections.abc import Callable

from trimodal.errors import Cancelled, InternalError, OperatorError, RequestError, Unavailable
from trimodal.llm.admission import Admission
from trimodal.llm.core import Stepped
from trimodal.llm.courier import Courier
from trimodal.llm.detokenize import TextStream
from trimodal.llm.engine import EngineInfo, EngineRequest, EngineStats
from trimodal.llm.link import EngineLink, start_process
from trimodal.llm.metrics import LlmMetrics
from trimodal.llm.request import GenerationRequest
from trimodal.llm.settings import LlmSettings
from trimodal.llm.stream import Delta, Sink, Stream
from trimodal.llm.tokenizer import ByteTokenizer, CheckpointTokenizer

_RESTARTS = 3
_RESTART_WINDOW_S = 300.0


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
        self._losses: list[float] = []
        self._absence = "the engine is being restarted; try again later"
        self._stats = EngineStats()
        self._link: EngineLink | None = start(settings)
        self.info: EngineInfo = self._link.info
        self._admission = Admission(settings, self.info)
        self._courier = Courier(settings.senders, self._lock, self._sent)
        self._link.start(self._stepped, self._lost)
        self._watch = threading.Thread(target=self._watch_clients, name="llm-watch", daemon=True)
        self._watch.start()

    def submit(self, request: GenerationRequest, sink: Sink) -> None:
        """Takes a request in; its answer goes to `sink`, from other threads.

        Raises:
            RequestError: it is refused; `sink` is not called.
        """
        try:
            stream = self._admit(request, sink)
        except RequestError as error:
            self._metrics.outcome(error.code.lower())
            raise
        with self._lock:
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

    def _admit(self, request: GenerationRequest, sink: Sink) -> Stream:
        arrived = time.perf_counter()
        self._check_open()
        prompt_ids = request.token_ids(self._tokenizer, self._settings.apply_chat_template)
        self._admission.check_size(len(prompt_ids), request.sampling.max_tokens)
        with self._lock:
            self._check_open()
            if self._waiting or self._admission.running >= self.info.max_num_seqs:
                self._admission.check_queue(len(self._waiting) + 1)
        stream = Stream(
            next(self._ids), request, prompt_ids, TextStream(self._tokenizer, request.stops), sink
        )
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
            sampling = stream.request.sampling
            if not self._admission.reserve(stream.id, len(stream.prompt_ids), sampling.max_tokens):
                return
            self._waiting.popleft()
            self._running[stream.id] = stream
            stream.started = time.perf_counter()
            self._link.add(EngineRequest(stream.id, stream.prompt_ids, sampling))

    def _stepped(self, stepped: Stepped) -> None:
        with self._lock:
            self._stats = stepped.stats
            for output in stepped.outputs:
                stream = self._running.get(output.id)
                if stream is None:
                    continue  # cancelled while this step ran
                stream.cached_tokens = output.cached_tokens
                if output.finish_reason == "error":
                    self._fail(stream, InternalError(output.error))
                    continue
                if stream.push(output.token_ids, output.finish_reason):
                    self._leave(stream, still_in_engine=output.finish_reason is None)
                self._courier.notify(stream)
            self._changed()

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

    def _sent(self, stream: Stream, item: Delta | RequestError) -> None:
        now = time.perf_counter()
        metrics = self._metrics
        if isinstance(item, RequestError):
            metrics.outcome(item.code.lower())
            return
        if item.text:
            if stream.last_sent:
                metrics.itl.observe(now - stream.last_sent)
            else:
                metrics.ttft.observe(now - stream.arrived)
                metrics.queue.observe(stream.started - stream.arrived)
            stream.last_sent = now
        if item.finish_reason:
            metrics.e2e.observe(now - stream.arrived)
            metrics.outcome(item.finish_reason)
            metrics.tokens("prompt", item.prompt_tokens)
            metrics.tokens("completion", item.completion_tokens)
            if item.cached_tokens:
                metrics.tokens("cached", item.cached_tokens)
                metrics.prefix_hits.increment(1)

    def _watch_clients(self) -> None:
        """Looks for clients that cancelled or left, wherever their request is."""
        while not self._closing.wait(self._settings.cancel_poll_ms / 1e3):
            with self._lock:
                streams = [*self._waiting, *self._running.values()]
            gone = [stream for stream in streams if stream.sink.is_cancelled()]
            with self._lock:
                for stream in gone:
                    if not stream.ended:
                        self._fail(stream, Cancelled("the client cancelled the request"))
                if gone:
                    self._changed()

    def _lost(self) -> None:
        """The engine's process died: its requests fail, those that wait stay, a new engine is opened."""
        now = time.monotonic()
        with self._lock:
            if self._closing.is_set():
                return
            self._link = None
            self._metrics.restarts.increment(1)
            self._stats = EngineStats()
            for stream in list(self._running.values()):
                self._fail(stream, InternalError("the engine stopped unexpectedly; send the request again"))
            self._losses = [at for at in self._losses if now - at < _RESTART_WINDOW_S] + [now]
            if len(self._losses) > _RESTARTS:
                print("trimodal: the engine keeps dying; not started again", file=sys.stderr, flush=True)
                self._give_up("the engine keeps failing; the operator must look at it")
                return
            self._changed()
        try:
            link = self._start(self._settings)
        except OperatorError as error:
            print(f"trimodal: the engine did not open again: {error}", file=sys.stderr, flush=True)
            with self._lock:
                self._give_up("the engine could not be started again; the operator must look at it")
            return
        with self._lock:
            self._link = link
            link.start(self._stepped, self._lost)
            self._changed()

    def _give_up(self, why: str) -> None:
        """No engine from now on: who waits and who comes is told so. The caller holds the lock."""
        self._absence = why
        for stream in list(self._waiting):
            self._fail(stream, Unavailable(why))
        self._changed()
