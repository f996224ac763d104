"""Moves generations from the waiting queue to the engine, and turns engine steps into text for listeners."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable

from trimodal.cache.audit.auditor import Auditor
from trimodal.errors import InternalError, InvalidArgument, RequestError, Unavailable
from trimodal.llm.engine_core.messages import Stepped
from trimodal.llm.engine_core.supervisor import (
    EngineEvent,
    EngineGivenUp,
    EngineLost,
    EngineReopened,
    EngineSupervisor,
)
from trimodal.llm.engines.protocol import EngineInfo, EngineStats, Output
from trimodal.llm.frontend.idle_audits import IdleAudits
from trimodal.llm.frontend.idle_prefills import IdlePrefills
from trimodal.llm.frontend.metrics import LlmMetrics
from trimodal.llm.frontend.operator_calls import ASLEEP, OperatorCalls, PendingCall
from trimodal.llm.frontend.registry import RequestRegistry
from trimodal.llm.frontend.request_state import Generation, RequestState
from trimodal.llm.request.operator import OperatorCall
from trimodal.llm.request.outputs import Sink
from trimodal.llm.scheduler.admission import Admission
from trimodal.llm.scheduler.scheduler import Scheduler
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tokenizer import Tokenizer

_REOPENED_S = 2.0  # a new engine is mostly open by then
logger = logging.getLogger(__name__)


class Dispatcher:
    """Passes generations through the scheduler and the engine. Guarded by the service's lock.

    Methods return the requests that have something to send. `stats` is the engine's last snapshot; `audits`,
    None without any, use its idle time.
    """

    def __init__(
        self,
        settings: LlmSettings,
        metrics: LlmMetrics,
        engine: EngineSupervisor,
        registry: RequestRegistry,
        tokenizer: Tokenizer,
        audits: Auditor | None = None,
        public: Callable[[], Iterable[list[int]]] = tuple,
    ) -> None:
        self._metrics = metrics
        self._engine = engine
        self._registry = registry
        self._tokenizer = tokenizer
        self._ids = itertools.count(1)
        self.stats = EngineStats()
        self.stepped = 0.0  # when the engine's last step came
        self._unavailable = ""  # message for clients while no engine is running
        self.audits = IdleAudits(audits, engine, tokenizer, self._ids) if audits else None
        share = settings.prefix_cache_restore if settings.enable_prefix_caching else 0.0
        self._prefills = IdlePrefills(share, engine, self._ids, public)
        self._scheduler = Scheduler(settings, engine.client.info)
        self.calls = OperatorCalls(settings, engine, self._ids)
        metrics.engine_ready.set(1)

    @property
    def admission(self) -> Admission:
        """What the engine has room for."""
        return self._scheduler.admission

    def begin_idle_work(self) -> None:
        """Uses an engine that is awake while no request is there; lost adapters are loaded beside some."""
        if self._unavailable or self.calls.asleep:
            return
        self.calls.load_lost()
        if self._registry.generations or self._registry.states:
            return
        if not self._prefills.begin() and self.audits:
            self.audits.begin()

    def interrupt_idle_work(self) -> None:
        """Makes room for a request, or an operator's call."""
        self._prefills.interrupt()
        if self.audits:
            self.audits.interrupt()

    def check_engine(self) -> None:
        """Raises Unavailable while there is none, or it sleeps."""
        if self._unavailable or self.calls.asleep:
            raise Unavailable(self._unavailable or ASLEEP)

    def add(self, state: RequestState) -> None:
        """Queues a generation for a request.

        Raises:
            Unavailable: no engine, no room, or too late for its deadline.
        """
        self.check_engine()
        adapter = self.calls.adapter(state.request.sampling.lora_name)
        ticket = state.ticket(next(self._ids))
        self._scheduler.admit(ticket)
        if state.trace:
            state.trace.queued = time.perf_counter()
        self._registry.begin(Generation(ticket, state, self._tokenizer, adapter))

    def operate(self, call: OperatorCall, sink: Sink, request_id: str) -> list[RequestState]:
        """Has the engine do what an operator wants; before it sleeps, what is in it or waits is ended.

        Raises:
            RequestError: it cannot.
        """
        if self._unavailable:
            raise Unavailable(self._unavailable)
        self.interrupt_idle_work()
        self.calls.begin(call, sink, request_id)
        if not self.calls.asleep:
            return []
        self._cache_emptied()
        return self._end_all(list(self._registry.generations.values()), Unavailable(ASLEEP))

    def join(self, state: RequestState) -> bool:
        """Lets a request listen to an identical one under way; False: there is none."""
        generation = self._registry.identical(state.question) if state.question else None
        if generation is None or state.wants_fresh or not generation.accepts(state):
            return False
        self._registry.join(generation, state)
        return True

    def boost(self, state: RequestState) -> None:
        """Gives the generation that a request joined the stricter terms of both."""
        assert state.generation
        self._scheduler.boost(state.generation.ticket, state.priority, state.ttft_deadline)

    def schedule(self) -> list[RequestState]:
        """Ends what cannot be served any more and hands over what may run now."""
        ended = []
        for overdue in self._scheduler.overdue():
            error = Unavailable(overdue.problem, overdue.retry_after_s)
            ended += self.end(self._registry.generations[overdue.id], error)
        if self._unavailable:
            return ended
        while ticket := self._scheduler.next():
            generation = self._registry.generations[ticket.id]
            generation.handed_over()
            self._engine.client.add(generation.engine_request)
        for stranded in self._scheduler.stranded():
            error = Unavailable("the engine was opened anew with less memory than this needs")
            ended += self.end(self._registry.generations[stranded.id], error)
        return ended

    def take(self, event: EngineEvent) -> tuple[list[RequestState | PendingCall], list[Generation]]:
        """Follows the engine: the requests that have something to send, and the generations completed."""
        changed: list[RequestState | PendingCall] = []
        completed: list[Generation] = []
        if isinstance(event, Stepped):
            resets = self.stats.cache_resets
            changed, completed = self._step(event)
            self._prefills.take(event.outputs)
            if self.audits:
                self.audits.take(event.outputs)
            if event.stats.cache_resets != resets:
                self._prefills.interrupt()  # one that waited within the engine is due with the others
                self._cache_emptied()
        elif isinstance(event, EngineLost):
            self._prefills.lost()
            if self.audits:
                self.audits.lost()
            changed = [*self._lost(event.reason), *self.calls.lost(event.reason)]
        elif isinstance(event, EngineReopened):
            self._reopened(event.info)
            self.calls.reopened()
        elif isinstance(event, EngineGivenUp):
            self._unavailable = event.reason
            changed = [*self._end_all(list(self._registry.generations.values()), Unavailable(event.reason))]
        return changed, completed

    def _step(self, stepped: Stepped) -> tuple[list[RequestState | PendingCall], list[Generation]]:
        """Turns a step into text."""
        self.stats, self.stepped = stepped.stats, time.perf_counter()
        changed: list[RequestState | PendingCall] = []
        completed: list[Generation] = []
        for output in stepped.outputs:
            generation = self._registry.generations.get(output.id)
            if generation is None:  # cancelled while this step ran, or no request's
                if call := self.calls.take(output):
                    changed.append(call)
                continue
            listeners = list(generation.listeners)
            try:
                if self._push(generation, output):
                    completed.append(generation)
            except Exception:
                # Other sequences go on: an exception here would count as the loss of the engine.
                logger.exception("a step's output failed", extra={"request_id": generation.id})
                self.end(generation, InternalError("the model failed on this request"))
            changed += listeners
        return changed, completed

    def end(self, generation: Generation, error: RequestError) -> list[RequestState]:
        """Fails a generation for all listeners."""
        listeners = list(generation.listeners)
        for state in listeners:
            state.fail(error)
            self._registry.remove(state)
        self.drop(generation)
        return listeners

    def drop(self, generation: Generation) -> None:
        """Takes a generation out of the queue or the engine: it has no listener."""
        self._registry.drop(generation)
        self._scheduler.leave(generation.ticket)
        if generation.ticket.started:
            self._engine.client.cancel(generation.id)

    def _lost(self, reason: str) -> list[RequestState]:
        """The engine died: fails what was in it, or was to run on its adapters; the rest goes on waiting."""
        self._metrics.engine_ready.set(0)
        self.stats = EngineStats()
        self._unavailable = reason
        ended = []
        for generation in list(self._registry.generations.values()):
            if generation.ticket.started or generation.engine_request.adapter:
                had = "request" if generation.ticket.started else "request's adapter"
                error = Unavailable(f"the engine that had this {had} died", _REOPENED_S)
                ended += self.end(generation, error)
        return ended

    def _cache_emptied(self) -> None:
        """The engine is the same, and has no prefix any more."""
        self._scheduler.cache_emptied()
        self._prefills.emptied()

    def _reopened(self, info: EngineInfo) -> None:
        """Another engine is open, perhaps with another capacity."""
        self._unavailable = ""
        self._scheduler.reopen(info)
        self._metrics.engine_ready.set(1)

    def show(self) -> None:
        """Updates the gauges."""
        waiting = self._scheduler.waiting + self._registry.looking
        self._metrics.state(self._scheduler.running, waiting, self.stats)

    def report(self) -> None:
        """Updates the scheduler's figures."""
        self._metrics.unserved(self._scheduler.unserved)

    def _end_all(self, generations: list[Generation], error: RequestError) -> list[RequestState]:
        return [state for generation in generations for state in self.end(generation, error)]

    def _push(self, generation: Generation, output: Output) -> bool:
        """Gives an output to the listeners; True when the answer is complete."""
        if output.finish_reason in ("error", "refused"):
            kind = InternalError if output.finish_reason == "error" else InvalidArgument
            self.end(generation, kind(output.error))
            return False
        self._scheduler.progress(generation.ticket, len(output.token_ids), output.cached_tokens)
        if not generation.push(output):
            if generation.finish_reason:
                self.end(generation, InvalidArgument(f"{generation.problem}, in every attempt"))
            elif output.finish_reason:
                self._engine.client.add(generation.engine_request)
            return False
        if output.finish_reason is None:  # a stop string, which the engine does not know
            self._engine.client.cancel(generation.id)
        self._scheduler.finish(generation.ticket)
        self._prefills.found(generation.engine_request, generation.tenant, generation.ticket.cached_tokens)
        self._registry.drop(generation)
        for state in list(generation.listeners):
            self._registry.remove(state)
        return True
