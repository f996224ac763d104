"""Serves the requests of one llm model: submit a request, cancel one by its key, close.

A request's way: `submit` → input processor → cache lookup → scheduler → engine → `_follow_engine` →
detokenizer → request state → response sender → client. `LlmService` owns the lock and the threads; its
helpers do one step each and return what changed.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable

from trimodal import logs
from trimodal.cache.answers import AnswerCache, AnswerLookup
from trimodal.cache.values import Hit
from trimodal.errors import Cancelled, InternalError, RequestError, Unavailable
from trimodal.llm.engine_core.client import EngineCoreClient, start_process
from trimodal.llm.engine_core.supervisor import EngineSupervisor
from trimodal.llm.frontend.cache_lookup import CacheLookup
from trimodal.llm.frontend.dispatcher import Dispatcher
from trimodal.llm.frontend.input_processor import InputProcessor
from trimodal.llm.frontend.metrics import LlmMetrics
from trimodal.llm.frontend.operator_calls import PendingCall
from trimodal.llm.frontend.public_prompts import check_public_prompts
from trimodal.llm.frontend.registry import RequestRegistry
from trimodal.llm.frontend.request_state import Generation, RequestState
from trimodal.llm.frontend.response_sender import ResponseSender
from trimodal.llm.request.operator import OperatorCall
from trimodal.llm.request.outputs import Delta, Note, Sink, WholeAnswer
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.request.terms import CancelRequest, ProbeRequest
from trimodal.llm.settings import LlmSettings
from trimodal.manifest import built_at

logger = logging.getLogger(__name__)

_ENDS = "the server is shutting down"
_SENDERS = 2


class LlmService:
    """Takes the requests of one model and sends each of them its answer or its error.

    One lock guards all of them. Private methods are called with it held, unless they say that they are a
    thread's or called without. Threads: llm-engine (`_follow_engine`), llm-monitor (`_monitor_requests`),
    llm-sender-N (`_send_responses`), and the cache's llm-lookup-N (`_look_up`).

    Args:
        answers: the cache of answers; None: none is stored. fingerprint: of model and engine.
        stop_file: once it is there, running requests end with UNAVAILABLE: a drain that took too long.

    Raises:
        OperatorError: the engine, its tokenizer or the tiers could not be opened.
    """

    def __init__(
        self,
        settings: LlmSettings,
        metrics: LlmMetrics,
        start: Callable[[LlmSettings], EngineCoreClient] = start_process,
        *,
        answers: AnswerCache | None = None,
        fingerprint: str = "",
        stop_file: str = "",
    ) -> None:
        self._metrics = metrics
        self._input = InputProcessor(settings)
        self._created = built_at(settings.artefact_directory)
        templated = settings.apply_chat_template if self._input.tokenizer.has_chat_template else None
        dated = self._input.tokenizer.is_dated
        self._cache = (
            CacheLookup(settings, answers, fingerprint, templated=templated, dated=dated)
            if answers or settings.cache != "off"
            else None
        )
        self._answers = answers
        self._lock = threading.Lock()
        self._registry = RequestRegistry()
        self._sender = ResponseSender(metrics)
        self._poll_s = settings.cancel_poll_ms / 1e3
        self._lookup_poll_s = min(self._poll_s, settings.cache_budget_ms / 1e3)
        self._checks_next = 0.0  # when the monitor wakes up, `time.perf_counter`
        self._wake_monitor = threading.Event()
        self._closing = threading.Event()
        self._stop_file = stop_file
        self._ttft_deadlines = settings.scheduler != "fifo"
        self._engine = EngineSupervisor(settings, start, metrics.restarts)
        audits = answers.audits if answers else None
        try:
            parts = self._engine, self._registry, self._input.tokenizer
            self._dispatcher = Dispatcher(settings, metrics, *parts, audits, self._input.public_today)
            check_public_prompts(self._input.public_prompts, self._dispatcher.admission.room(1))
        except BaseException:
            self._engine.close()
            raise
        self._idle_audits = self._dispatcher.audits
        named = [("llm-engine", self._follow_engine), ("llm-monitor", self._monitor_requests)]
        named += [(f"llm-sender-{index + 1}", self._send_responses) for index in range(_SENDERS)]
        self._threads = [threading.Thread(target=run, name=name, daemon=True) for name, run in named]
        for thread in self._threads:
            thread.start()

    def submit(
        self,
        request: GenerationRequest | CancelRequest | ProbeRequest | OperatorCall,
        sink: Sink,
        request_id: str = "",
    ) -> None:
        """Takes a request; its answer goes to `sink`, from other threads. `request_id` is for the log.

        Raises:
            RequestError: it is refused; `sink` is not called.
        """
        if isinstance(request, CancelRequest):
            found = self.cancel(request.key)
            sink.send(Delta("", "cancelled" if found else "not_found", note=Note()))
            return
        if isinstance(request, ProbeRequest):
            self._check_open()
            with self._lock:
                self._dispatcher.check_engine()
                length = self._dispatcher.admission.room(0)
                calls = self._dispatcher.calls
                some = {"adapters": calls.adapters, "loading": calls.loading()}
            told: dict[str, object] = {"max_model_len": length, "created": self._created}
            told |= {name: adapters for name, adapters in some.items() if adapters}
            sink.send(Delta(json.dumps(told), "ready", note=Note()))
            return
        if isinstance(request, OperatorCall):
            self._check_open()
            with self._lock:
                self._sender.notify(*self._dispatcher.operate(request, sink, request_id))
            return
        if not request.stream:
            sink = WholeAnswer(sink, (request.prompt or "") if request.repeats_prompt else "")
        with self._metrics.refusals():
            self._check_open()
            state = self._input.process(request, sink, self._dispatcher.admission, request_id)
            lookup = self._cache.begin(state) if self._cache else None
            with self._lock:
                # Check again under the lock: a request registered after close() would never be finished.
                self._check_open()
                self._registry.add(state)
                self._dispatcher.interrupt_idle_work()
                state.lookup = lookup
                if lookup is None:
                    try:
                        if not self._join(state):
                            self._queue(state)
                    except RequestError:
                        state.break_off(None)
                        self._leave(state)
                        raise
                    except Exception:
                        self._break(state)
                    return
                if time.perf_counter() + self._lookup_poll_s < self._checks_next:
                    self._wake_monitor.set()
        assert self._answers
        if not self._answers.submit(self._look_up, state, lookup):
            self._metrics.lookups_skipped.increment(1)
            with self._lock:
                self._go_past_cache(state, lookup)

    def cancel(self, key: str) -> bool:
        """Ends the request with this cancel key; False: none has it (one that comes soon will end)."""
        with self._lock:
            if state := self._registry.cancelled(key):
                self._fail(state, Cancelled("the client cancelled the request"))
                self._schedule()
            return state is not None

    def close(self, timeout: float = 10.0) -> None:
        """Fails all requests with UNAVAILABLE, ends the engine, the cache and all threads."""
        self._closing.set()
        self._wake_monitor.set()
        self._fail_all()
        self._engine.close()
        if self._answers:
            self._answers.close()
        self._sender.close(_SENDERS)
        for thread in self._threads:
            thread.join(timeout)

    def _follow_engine(self) -> None:
        """Thread llm-engine: turns the engine's events into answers."""
        for event in self._engine.events():
            completed: list[Generation] = []
            try:
                with self._lock:
                    changed, completed = self._dispatcher.take(event)
                    self._sender.notify(*changed)
                    self._schedule()
                    self._dispatcher.begin_idle_work()
            except Exception:
                # Without its steps no request would end: an engine that cannot be followed is a lost one.
                logger.exception("an event of the engine could not be taken")
                self._engine.client.abandon()
            if self._cache:
                for generation in completed:
                    self._cache.keep(generation)

    def _monitor_requests(self) -> None:
        """Thread llm-monitor: ends what has to end, every `cancel_poll_ms`; gives up lookups in time."""
        next_check = 0.0
        failures = logs.LoopFailures(logger)
        while not self._closing.is_set():
            now = time.perf_counter()
            with self._lock:
                lookups = [state.lookup.until for state in self._registry.states if state.lookup]
                soon = min(min(lookups), now + self._lookup_poll_s) if lookups else next_check
                self._checks_next = min(next_check, soon)
            self._wake_monitor.wait(max(0.0, self._checks_next - now))
            self._wake_monitor.clear()
            now = time.perf_counter()
            try:
                self._give_up_lookups(now)
                if now >= next_check:
                    next_check = now + self._poll_s
                    self._check_requests()
                    if self._stop_file and os.path.exists(self._stop_file):
                        self._fail_all()
            except Exception as error:
                # Without this thread no client could leave any more.
                failures.tell("the requests could not be checked", error)

    def _check_requests(self) -> None:
        """Ends the requests whose clients left or whose deadlines passed. Called without the lock."""
        with self._lock:
            states = list(self._registry.states)
        left = [state for state in states if not state.ended and state.client_left()]
        now = time.perf_counter()
        with self._lock:
            for state in left:
                self._fail(state, Cancelled("the client cancelled the request"))
            for state in states:
                if state.ended:
                    continue
                if problem := state.too_late(now, ttft_deadlines=self._ttft_deadlines):
                    self._fail(state, problem)
                elif now > state.deadline:  # it keeps the text so far
                    self._leave(state)
                    state.push("", 0, "deadline", state.cached_tokens)
                    self._sender.notify(state)
                elif state.waits(now, self._dispatcher.stepped):
                    self._sender.notify(state)
            if states:
                self._schedule()
            self._dispatcher.begin_idle_work()
            self._dispatcher.report()

    def _give_up_lookups(self, now: float) -> None:
        """Serves the requests whose lookups take too long without them. Called without the lock."""
        with self._lock:
            for state in list(self._registry.states):
                lookup = state.lookup
                if lookup and lookup.give_up(now):
                    if not lookup.begun:
                        self._metrics.lookups_skipped.increment(1)
                    self._go_past_cache(state, lookup)

    def _look_up(self, state: RequestState, lookup: AnswerLookup) -> None:
        """Threads llm-lookup-N: answers a request from the cache, or queues it."""
        assert self._cache
        with self._lock:
            if state.lookup is not lookup:
                return  # it waited too long for this thread, or its client left
        for hit in self._cache.find(lookup):
            with self._lock:
                if self._answer_or_join(state, lookup, hit):
                    return
        with self._lock:
            self._go_past_cache(state, lookup)

    def _answer_or_join(self, state: RequestState, lookup: AnswerLookup, hit: Hit | None) -> bool:
        """Answers a request with a hit, or lets it join an identical one; False: neither is there."""
        if state.lookup is not lookup:
            return True  # it has ended, or gone past the cache
        try:
            if hit:
                state.answer(hit)
                self._leave(state)
                self._sender.notify(state)
                self._schedule()
                if self._idle_audits and self._cache and self._cache.is_audited(state, hit):
                    self._idle_audits.offer(state, hit.entry)
                return True
            return self._join(state)
        except Exception:
            self._break(state)
            return True

    def _go_past_cache(self, state: RequestState, lookup: AnswerLookup) -> None:
        """Serves a request whose lookup found nothing, or was skipped or given up."""
        if state.lookup is not lookup:
            return
        try:
            if not self._join(state):
                self._queue(state)
        except RequestError as error:
            self._fail(state, error)
        except Exception:
            self._break(state)

    def _join(self, state: RequestState) -> bool:
        if not self._dispatcher.join(state):
            return False
        state.lookup = None
        self._sender.notify(state)
        try:
            self._dispatcher.boost(state)
            self._schedule()
        except Exception:
            # It listens already: only its terms were not passed on.
            logger.exception("a request joined without its terms", extra={"request_id": state.request_id})
        return True

    def _queue(self, state: RequestState) -> None:
        """Queues a generation for a request. Raises RequestError: there is no room for it, or no time."""
        state.lookup = None
        self._dispatcher.add(state)
        self._schedule()

    def _break(self, state: RequestState) -> None:
        """Ends a request that met a fault of ours."""
        logger.exception("a request failed", extra={"request_id": state.request_id})
        self._fail(state, InternalError("the model failed on this request; send it again"))

    def _fail(self, state: RequestState, error: RequestError) -> None:
        """Ends a request with an error, unless it has ended."""
        if state.fail(error):
            self._leave(state)
            self._sender.notify(state)

    def _fail_all(self) -> None:
        """Ends every request, as the server ends. Called without the lock."""
        with self._lock:
            for state in list(self._registry.states):
                self._fail(state, Unavailable(_ENDS))
            self._sender.notify(*self._dispatcher.calls.lost(_ENDS))

    def _leave(self, state: RequestState) -> None:
        """Takes a request that ends out of the registry, and what only it listened to out of the engine."""
        state.lookup = None
        if generation := self._registry.remove(state):
            self._dispatcher.drop(generation)
        self._dispatcher.show()

    def _send_responses(self) -> None:
        """Threads llm-sender-N: hand over what requests have to send."""
        while state := self._sender.next():
            try:
                self._send_all(state)
            except Exception:
                logger.exception("a request failed", extra={"request_id": state.request_id})

    def _send_all(self, state: RequestState | PendingCall) -> None:
        """Sends what a request has, until it has nothing more. Called without the lock."""
        while True:
            with self._lock:
                item = state.take()
            if item is None:
                return
            if not self._sender.send(state, item):
                with self._lock:
                    state.break_off(InternalError("the answer could not be sent; send the request again"))
                    if isinstance(state, RequestState):
                        self._leave(state)
                    self._schedule()

    def _schedule(self) -> None:
        """Hands over what may run now, after every change."""
        self._sender.notify(*self._dispatcher.schedule())
        self._dispatcher.show()

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise Unavailable(_ENDS)
