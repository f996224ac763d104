"""The llm model's whole behaviour behind three calls: submit a request, cancel one by its key, and close.

Request path: read → tier → cache → admit → queue → engine → text → courier → sink. The
service owns the requests; dispatch.py the way through queue and engine. It does not know
Triton: the glue gives it tensors, a sink per request and a metric factory.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable

from trimodal.cache.protocol import Answers
from trimodal.cache.values import Hit, Question
from trimodal.errors import Cancelled, InternalError, RequestError, Unavailable
from trimodal.llm.detokenizer import TextStream
from trimodal.llm.engine_core.client import EngineLink, start_process
from trimodal.llm.engines.protocol import EngineInfo, EngineStats
from trimodal.llm.frontend.cache_lookup import Front
from trimodal.llm.frontend.dispatcher import Dispatch
from trimodal.llm.frontend.input_processor import Reader
from trimodal.llm.frontend.metrics import LlmMetrics
from trimodal.llm.frontend.monitor import Watch
from trimodal.llm.frontend.registry import Book
from trimodal.llm.frontend.request_state import Generation, Stream
from trimodal.llm.frontend.response_sender import Courier
from trimodal.llm.frontend.ticketing import ttft_deadline
from trimodal.llm.request.outputs import Delta, Note, Sink
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.request.terms import CancelRequest
from trimodal.llm.settings import LlmSettings


class LlmService:
    """Reads, answers, streams and cancels the requests of one model.

    Args:
        settings: the model's parameters.
        metrics: where to count.
        start: opens the engine; another one is for tests.
        answers: the cache of answers; None: every request is generated.
        fingerprint: of model and engine, for the cache.

    Raises:
        OperatorError: the engine, its tokenizer or the tiers could not be opened.
    """

    def __init__(
        self,
        settings: LlmSettings,
        metrics: LlmMetrics,
        start: Callable[[LlmSettings], EngineLink] = start_process,
        *,
        answers: Answers | None = None,
        fingerprint: str = "",
    ) -> None:
        self._metrics = metrics
        self._reader = Reader(settings)
        templated = settings.apply_chat_template and self._reader.tokenizer.has_chat_template
        self._front = None
        if answers:
            skipped = metrics.lookups_skipped.increment
            self._front = Front(
                settings, answers, fingerprint, templated=templated, skipped=lambda: skipped(1)
            )
        self._lock = threading.RLock()
        self._book = Book()
        self._closing = threading.Event()
        self._courier = Courier(settings.senders, self._lock, metrics.delivered, self._unsent)
        tell, complete = self._courier.notify, self._complete
        self._dispatch = Dispatch(settings, metrics, start, self._lock, self._book, tell, complete)
        self._dispatch.open()
        self._watch = Watch(settings, self._lock, self._book, self._dispatch, self._fail, self._cut)

    def submit(self, request: GenerationRequest | CancelRequest, sink: Sink) -> None:
        """Takes a request in; its answer goes to `sink`, from other threads.

        Raises:
            RequestError: it is refused; `sink` is not called.
        """
        if isinstance(request, CancelRequest):
            found = self.cancel(request.key)
            sink.send(Delta("", "cancelled" if found else "not_found", 0, 0, 0, 0, Note()))
            return
        with self._metrics.refusals():
            self._check_open()
            stream = self._reader.read(request, sink, self._dispatch.admission)
            asked = self._front.question(stream) if self._front else None
            with self._lock:
                # Asked in the same breath: a stream that joins after close() would never get an end.
                self._check_open()
                self._book.enter(stream)
            if asked and self._consult(stream, asked):
                return
            with self._lock:
                if stream.ended:
                    return  # its client was told already
                try:
                    self._generate(stream, asked)
                except RequestError:
                    self._book.leave(stream)
                    raise

    def cancel(self, key: str) -> bool:
        """Ends the request with this cancel key; False: none has it (one that comes soon will end)."""
        with self._lock:
            stream = self._book.keyed(key)
            if stream is None:
                return False
            self._fail(stream, Cancelled("the client cancelled the request"))
            self._dispatch.changed()
            return True

    def close(self, timeout: float = 10.0) -> None:
        """Fails what is left with UNAVAILABLE, ends the engine, the cache and all threads."""
        self._closing.set()
        with self._lock:
            for stream in list(self._book.streams):
                self._fail(stream, Unavailable("the server is shutting down"))
        self._dispatch.close()
        if self._front:
            self._front.close()
        self._watch.close(timeout)
        self._courier.close(timeout)

    @property
    def info(self) -> EngineInfo:
        """What the engine is and can hold."""
        return self._dispatch.info

    @property
    def stats(self) -> EngineStats:
        """The engine's last snapshot."""
        return self._dispatch.stats

    @property
    def counts(self) -> tuple[int, int, int]:
        """Running generations, waiting ones, reserved KV blocks."""
        with self._lock:
            return self._dispatch.counts

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise Unavailable("the server is shutting down")

    def _consult(self, stream: Stream, asked: Question) -> bool:
        assert self._front
        return self._front.consult(
            stream, asked, lambda: self._join(stream, asked), lambda hit: self._looked(stream, asked, hit)
        )

    def _looked(self, stream: Stream, asked: Question, hit: Hit | None) -> None:
        """The cache has been asked."""
        with self._lock:
            if stream.ended:
                return  # cancelled meanwhile
            try:
                if hit:
                    stream.answer(hit)
                    self._book.leave(stream)
                    self._courier.notify(stream)
                    self._dispatch.changed()
                elif not self._join(stream, asked):
                    self._generate(stream, asked)
            except RequestError as error:
                self._fail(stream, error)
            except Exception:
                self._broken(stream)

    def _join(self, stream: Stream, asked: Question) -> bool:
        """Lets a stream listen to an identical request under way; True also when it has ended meanwhile."""
        with self._lock:
            if stream.ended or stream.generation:
                return True
            generation = self._book.same(asked)
            if generation is None or not generation.suits(stream):
                return False
            self._book.join(generation, stream)
            self._courier.notify(stream)
            self._dispatch.hasten(generation.ticket, stream.priority, ttft_deadline(stream))
            return True

    def _generate(self, stream: Stream, asked: Question | None) -> None:
        """Raises RequestError: there is no room for it, or no time."""
        try:
            self._dispatch.add(stream, TextStream(self._reader.tokenizer, stream.request.stops), asked)
        except RequestError:
            raise
        except Exception:
            self._broken(stream)

    def _broken(self, stream: Stream) -> None:
        """A fault of ours, whatever it was: the request gets its end, and no second one."""
        traceback.print_exc(file=sys.stderr)
        if not stream.ended:
            self._fail(stream, InternalError("the model failed on this request; send it again"))

    def _complete(self, generation: Generation) -> None:
        if self._front:
            self._front.keep(generation)

    def _fail(self, stream: Stream, error: RequestError) -> None:
        self._leave(stream)
        stream.fail(error)
        self._courier.notify(stream)

    def _leave(self, stream: Stream) -> None:
        generation = self._book.leave(stream)
        if generation:  # nobody listens to it any more
            self._dispatch.drop(generation)

    def _unsent(self, stream: Stream) -> None:
        """Part of an answer could not be handed on: what would follow is not the answer any more."""
        with self._lock:
            if not stream.ended:
                self._leave(stream)
                self._dispatch.changed()
            stream.fail(InternalError("the answer could not be sent; send the request again"))

    def _cut(self, stream: Stream) -> None:
        """Its answer was to be complete by now: what came of it is kept."""
        self._leave(stream)
        stream.push("", 0, "deadline", stream.cached_tokens)
        self._courier.notify(stream)
