"""Generations between the queue and the engine: handed over in the scheduler's order, fed, ended, or failed.

Requests, clients and the cache are the service's affair; it is told when streams have something to send.
"""

from __future__ import annotations

import itertools
import sys
import threading
import traceback
from collections.abc import Callable

from trimodal.cache.values import Question
from trimodal.errors import InternalError, RequestError, Unavailable
from trimodal.llm.detokenizer import TextStream
from trimodal.llm.engine_core.client import EngineLink
from trimodal.llm.engine_core.messages import Stepped
from trimodal.llm.engine_core.supervisor import EngineKeeper
from trimodal.llm.engines.protocol import EngineInfo, EngineStats, Output
from trimodal.llm.frontend.metrics import LlmMetrics
from trimodal.llm.frontend.registry import Book
from trimodal.llm.frontend.request_state import Generation, Stream
from trimodal.llm.frontend.ticketing import ticket_of
from trimodal.llm.scheduler import Scheduler, Ticket
from trimodal.llm.scheduler.admission import Admission
from trimodal.llm.settings import LlmSettings


class Dispatch:
    """All methods are called with the service's `lock` held, except `close`.

    Args:
        book: the service's; generations are entered and dropped here.
        tell: a stream has something to be sent.
        complete: a generation has its whole answer.
    """

    def __init__(
        self,
        settings: LlmSettings,
        metrics: LlmMetrics,
        start: Callable[[LlmSettings], EngineLink],
        lock: threading.RLock,
        book: Book,
        tell: Callable[[Stream], None],
        complete: Callable[[Generation], None],
    ) -> None:
        self._metrics = metrics
        self._lock = lock
        self._book = book
        self._tell = tell
        self._complete = complete
        self._ids = itertools.count(1)
        self.stats = EngineStats()
        self._advised = False
        self._engine = EngineKeeper(settings, start, lock, metrics)
        self._scheduler = Scheduler(settings, self._engine.info)

    def open(self) -> None:
        """Begins to follow the engine."""
        self._engine.run(self._stepped, self._lost, self._back, self._given_up)

    def close(self) -> None:
        """Ends the engine."""
        self._engine.close()

    @property
    def info(self) -> EngineInfo:
        return self._engine.info

    @property
    def admission(self) -> Admission:
        """The books of the engine's capacity."""
        return self._scheduler.admission

    @property
    def counts(self) -> tuple[int, int, int]:
        """Running generations, waiting ones, reserved KV blocks."""
        return self._scheduler.running, self._scheduler.waiting, self._scheduler.reserved_blocks

    def add(self, stream: Stream, text: TextStream, question: Question | None) -> None:
        """Queues a generation for a stream; others that ask the same `question` may join it.

        Raises:
            Unavailable: no engine, no room, or too late for its deadline.
        """
        if not self._engine.there:
            raise Unavailable(self._engine.absence)
        ticket = ticket_of(next(self._ids), stream)
        self._scheduler.admit(ticket)
        self._book.add(Generation(ticket, stream, text, question))
        self.changed()

    def hasten(self, ticket: Ticket, priority: int, ttft_deadline: float) -> None:
        """Somebody more urgent waits for it too."""
        self._scheduler.hasten(ticket, priority, ttft_deadline)
        self.changed()

    def changed(self) -> None:
        """Something came or went: hands over what may run now, and shows the new state."""
        self._expire()
        while self._engine.there and (ticket := self._scheduler.next()):
            generation = self._book.generations[ticket.id]
            generation.handed_over()
            self._engine.add(generation.engine_request())
        if self._engine.there:
            for ticket in self._scheduler.stranded():
                error = Unavailable("the engine was opened anew with less memory than this needs")
                self.end(self._book.generations[ticket.id], error)
        self._metrics.state(self._scheduler.running, self._scheduler.waiting + self._book.looking, self.stats)

    def report(self) -> None:
        """Shows what the scheduler does; now and then is enough."""
        self._metrics.scheduling(self._scheduler.stats())
        if not self._advised and (advice := self._scheduler.advice):
            self._advised = True  # once: the figures in it move with every request
            print(f"trimodal: llm: {advice}", file=sys.stderr, flush=True)

    def drop(self, generation: Generation) -> None:
        """Nobody wants it any more, wherever it is."""
        self._book.drop(generation)
        self._scheduler.leave(generation.ticket)
        if generation.ticket.started:
            self._engine.cancel(generation.id)

    def end(self, generation: Generation, error: RequestError) -> None:
        """Fails it for all who listen."""
        for stream in list(generation.streams):
            stream.fail(error)
            self._book.leave(stream)
            self._tell(stream)
        self.drop(generation)

    def _expire(self) -> None:
        """What cannot have its first text in time any more, or had to make room, never reaches the engine."""
        for ticket in self._scheduler.overdue():
            error = Unavailable(ticket.problem, ticket.retry_after_s)
            self.end(self._book.generations[ticket.id], error)

    def _stepped(self, stepped: Stepped) -> None:
        with self._lock:
            self.stats = stepped.stats
            for output in stepped.outputs:
                generation = self._book.generations.get(output.id)
                if generation is None:
                    continue  # cancelled while this step ran
                try:
                    self._take(generation, output)
                except Exception:
                    # Left to itself this would end the engine's reader, and every request with it.
                    traceback.print_exc(file=sys.stderr)
                    self.end(generation, InternalError("the model failed on this request"))
            self.changed()

    def _take(self, generation: Generation, output: Output) -> None:
        if output.finish_reason == "error":
            self.end(generation, InternalError(output.error))
            return
        self._scheduler.progress(generation.ticket, len(output.token_ids), output.cached_tokens)
        complete = generation.push(output.token_ids, output.finish_reason, output.cached_tokens)
        streams = list(generation.streams)
        if complete:
            if output.finish_reason is None:  # a stop string: the engine does not know
                self._engine.cancel(generation.id)
            self._scheduler.finish(generation.ticket)
            self._book.drop(generation)
            for stream in streams:
                self._book.leave(stream)
        for stream in streams:
            self._tell(stream)
        if complete:
            self._complete(generation)

    def _lost(self) -> None:
        self.stats = EngineStats()
        for generation in list(self._book.generations.values()):
            if generation.ticket.started:
                self.end(generation, InternalError("the engine stopped unexpectedly; send the request again"))
        self.changed()

    def _back(self, info: EngineInfo) -> None:
        self._scheduler.reopen(info)
        self.changed()

    def _given_up(self) -> None:
        for generation in list(self._book.generations.values()):
            self.end(generation, Unavailable(self._engine.absence))
        self.changed()
