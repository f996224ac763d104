"""Keeps what is known of one request, and of the generation it listens to, until its final response."""

from __future__ import annotations

import logging
import math
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from trimodal.cache.answers import AnswerLookup
from trimodal.cache.values import Hit, Question
from trimodal.errors import RequestError, Unavailable
from trimodal.llm.detokenizer import TextStream, said
from trimodal.llm.engines.protocol import Adapter, EngineRequest, Output
from trimodal.llm.frontend.metrics import LlmMetrics
from trimodal.llm.logprobs import TextLogprobs, prompt_tokens
from trimodal.llm.request.outputs import Delta, Note, Sink, TokenLogprob
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.scheduler.retry_after import bounded
from trimodal.llm.scheduler.ticket import Ticket
from trimodal.llm.structured.families import AnswerReader
from trimodal.llm.tiers import Tier
from trimodal.llm.tokenizer import Tokenizer
from trimodal.trace import Span, span

logger = logging.getLogger(__name__)

_PREFIX_TOKENS = 64
_MOST_ATTEMPTS = 3
_SEED_STEP = 0x9E3779B9  # odd, of 32 bits: OpenVINO GenAI takes no more of a seed
_QUIET_S = 5.0
"""So long nothing is sent before a client is told that the engine works. Clients give up a silent server:
ours after 60 s."""
_MAX_LISTENERS = 1024
"""Upper bound on requests that share one generation. They bypass the queue limit, so without it a client
that repeats one prompt could exhaust the memory."""


class Generation:
    """One sequence in the queue or in the engine, and the requests that listen to it.

    Guarded by the service's lock. The cache keeps the answer under `question` (None: it is neither kept nor
    shared) if it is `storable`: no listener has forbidden it.
    """

    def __init__(
        self, ticket: Ticket, first: RequestState, tokenizer: Tokenizer, adapter: Adapter | None = None
    ) -> None:
        self.ticket = ticket
        self.question = first.question
        self.storable = first.question is not None
        self.listeners: list[RequestState] = []
        self.engine_request = first.engine_request(ticket.id, adapter)
        self.tenant = first.request.terms.tenant
        self.finish_reason = ""
        self.problem = ""  # why the engine's last answer to it was not the one that was asked for
        self._request = first.request
        self._make_reader = first.make_reader
        self._context = first.context
        self._tokenizer = tokenizer
        self._attempts = 0
        self._begin()
        # The text so far is only needed by listeners that join later, and by the cache.
        self._texts: list[str] | None = [] if first.question else None
        self.join(first)

    @property
    def id(self) -> int:
        return self.ticket.id

    @property
    def answer(self) -> str:
        """The text so far; empty when there is no question."""
        return "".join(self._texts or ())

    def _begin(self) -> None:
        """Makes ready for an answer: the first, or another for one that was not in its form."""
        request, sampling = self._request, self._request.sampling
        self._reader = self._make_reader()
        whole = bool(sampling.grammar or (self._reader and self._reader.whole))
        tokenizer, context, least = self._tokenizer, self._context, sampling.min_tokens
        self._text = TextStream(tokenizer, request.stops, whole=whole, context=context, min_tokens=least)
        wanted = sampling.logprobs is not None
        self._logprobs = TextLogprobs(tokenizer, whole=whole, context=context) if wanted else None
        if self._attempts:
            # The same choices again would make the same answer.
            seed = sampling.seed
            if seed is not None:  # nor those of other choices, whose seeds follow each other
                seed ^= self._attempts * _SEED_STEP
            drawn = replace(sampling, temperature=sampling.temperature or 1.0, seed=seed)
            self.engine_request = replace(self.engine_request, sampling=drawn)
            self.ticket.completion_tokens = 0
        self._attempts += 1

    def accepts(self, state: RequestState) -> bool:
        """Whether a request may listen, and will not wait longer than for a generation of its own."""
        if len(self.listeners) >= _MAX_LISTENERS:
            return False
        # A queued generation takes its blocks from the first one's tier: a bigger share may be free now.
        return bool(self.ticket.started) or state.tier.kv_share <= self.ticket.tier.kv_share

    def join(self, state: RequestState) -> None:
        """Adds a listener and gives it the text so far."""
        state.generation = self
        state.shared = bool(self.ticket.completion_tokens or self.listeners)
        state.predicted_ttft = self._predicted_ttft(state)
        if "no-store" in state.request.terms.cache_control:
            self.storable = False
        self.listeners.append(state)
        if self.ticket.started:
            state.started = self.ticket.started
        if self.ticket.completion_tokens:
            state.push(self.answer, self.ticket.completion_tokens, "", self.ticket.cached_tokens)

    def leave(self, state: RequestState) -> bool:
        """Removes a listener; True when it was the last."""
        self.listeners.remove(state)
        state.generation = None
        if not self.finish_reason and not state.ended:  # its time is over: it gets what was held back
            reasoning, text = "", self._text.held
            # Who wants log probabilities shares with nobody.
            logprobs = self._logprobs.push((), (), text, last=True) if self._logprobs else ()
            if self._reader:
                reasoning, text = self._reader.rest(text)
            state.push(text, 0, "", self.ticket.cached_tokens, logprobs, reasoning)
        if self.listeners and not state.shared and not self.finish_reason:
            # The listener that it was generated for has gone: the next one takes its place in the figures,
            # with all that was generated so far.
            self.listeners[0].shared = False
            state.handed_on = True
        return not self.listeners

    def handed_over(self) -> None:
        """Notes for all listeners that the engine has it now."""
        for state in self.listeners:
            logger.debug(
                "goes to the engine as sequence %d", self.ticket.id, extra={"request_id": state.request_id}
            )
            state.started = self.ticket.started
            state.predicted_ttft = self._predicted_ttft(state)

    def push(self, output: Output) -> bool:
        """Turns a step's tokens into text for all listeners; True when the answer is complete.

        An answer that the engine has ended is not if there is a `problem`: then it is to be generated again,
        or, with a finish_reason, given up.
        """
        token_ids = output.token_ids
        stops = self._request.sampling.stop_token_ids
        told = said(token_ids, output.finish_reason, self._tokenizer.ends.union(stops))
        text, stopped = self._text.push(told, last=output.finish_reason is not None)
        self.finish_reason = "stop" if stopped else output.finish_reason or ""
        if self._texts is not None:
            self._texts.append(text)
        logprobs: Sequence[TokenLogprob] = ()
        if self._logprobs:
            some = output.logprobs[: len(told)]
            logprobs = self._logprobs.push(told, some, text, last=bool(self.finish_reason))
        reasoning = ""
        if self._reader:
            reasoning, text = self._reader.push(text, last=bool(self.finish_reason))
            end = self._reader.thoughts_end  # a token that begins before it was thought
            thought = bisect_left(self._text.ends, end) + 1 if end else 0
            for state in self.listeners:
                state.reasoning_tokens = min(thought, len(self._text.ends))
        if output.prompt_logprobs and self._attempts == 1:
            ids = self.engine_request.prompt_ids
            prompt = prompt_tokens(self._tokenizer, ids, output.prompt_logprobs)
            for state in self.listeners:
                state.prompt_logprobs = prompt
        broken_off = stopped or (token_ids and token_ids[-1] in stops)
        if self.finish_reason == "stop" and not broken_off and self._request.form.is_checked:
            (state,) = self.listeners  # such an answer is not shared
            self.problem = self._request.form.problem(state.unsent + text)
            if self.problem:
                state.push("", len(token_ids), "", output.cached_tokens)  # what an attempt cost is used, too
                state.take_back()
                if self._attempts < _MOST_ATTEMPTS:
                    self.finish_reason = ""
                    self._begin()
                return False
        for state in self.listeners:
            state.push(
                text, len(token_ids), self.finish_reason, output.cached_tokens, logprobs, reasoning=reasoning
            )
        return bool(self.finish_reason)

    def _predicted_ttft(self, state: RequestState) -> float:
        """Seconds from the request's own arrival to its first text; nan: not predicted."""
        if self.ticket.completion_tokens:
            return 0.0
        seconds = self.ticket.arrived + self.ticket.predicted_ttft - state.arrived
        return seconds if math.isnan(seconds) else max(0.0, seconds)


class RequestTrace:
    """Notes when what happened to a request whose client wants its trace. Made when its prompt is tokenized.

    Attributes (times are `time.perf_counter`):
        arrived: when the service got it.
        queued: when it was let into the queue; 0: it was not (the cache answered, or it joined another).
    """

    def __init__(self, arrived: float) -> None:
        self.arrived, self.tokenized, self.queued = arrived, time.perf_counter(), 0.0
        self._texts: list[tuple[float, int]] = []

    def text(self, tokens: int) -> None:
        """New text came; the answer has so many tokens by now."""
        self._texts.append((time.perf_counter(), tokens))

    def spans(self, started: float) -> list[Span]:
        """What took how long, in order. `started`: when the engine got it; 0: never."""
        first, last = (self._texts[at][0] for at in (0, -1)) if self._texts else (time.perf_counter(),) * 2
        spans = [span("tokenize", self.arrived, self.tokenized)]
        if self.queued and started:
            spans += [
                span("admission", self.tokenized, self.queued),
                span("queue", self.queued, started),
                span("first token", started, first),
            ]
        else:
            spans.append(span("answer of another request", self.tokenized, first))
        spans.append(span("next tokens", first, last))
        return spans + [span("text", at, at, tokens=tokens) for at, tokens in self._texts]


@dataclass(eq=False, repr=False)
class RequestState:
    """One request from its submission to its final response.

    While the client's transport is slow, its text piles up into one longer delta.

    Guarded by the service's lock, but for `sink`, `sent` and `client_left`. Times are `time.perf_counter`.
    It has `deadline`, when its answer is to be complete, and `ttft_deadline`, when its first text is due,
    which the end's deadline bounds too; inf: never.
    """

    request: GenerationRequest
    prompt_ids: list[int]
    sink: Sink
    arrived: float
    request_id: str = ""  # the client's, for the log
    tier: Tier = field(default_factory=Tier)
    tier_name: str = "standard"
    priority: int = 0
    trimmed: str = ""  # what the prompt lost, as in `Note`
    cache_salt: str = ""  # of its prefixes in the engine's cache
    public_tokens: int = 0  # of the prompt, which everybody may find
    context: Sequence[int] = ()  # tokens of the prompt that its answer continues, as `context_of` has them
    started: float = 0.0  # when the engine got it; 0: it has not
    predicted_ttft: float = math.nan
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0  # of them
    # Set once, by `break_off`, `fail`, `push` or `answer`, whichever comes first; that one decides the final
    # response, and all later calls but `break_off` change nothing.
    ended: bool = False
    sending: bool = False  # a sender has it, or it waits for one
    question: Question | None = None  # in the cache; None: its answer is neither shared nor kept
    lookup: AnswerLookup | None = None  # its lookup in the cache while that is under way
    generation: Generation | None = None  # what it listens to; None before and after
    shared: bool = False  # the generation was begun for another request
    handed_on: bool = False  # it was begun for this one, which has left, and counts as another's now
    trace: RequestTrace | None = None  # None: the client does not want it
    prompt_logprobs: Sequence[TokenLogprob] = ()  # until they are sent
    make_reader: Callable[[], AnswerReader | None] = lambda: None  # for each attempt at its answer
    _cache: str = ""
    _similarity: float = 0.0
    _pending: str = ""
    _pending_reasoning: str = ""
    _pending_logprobs: list[TokenLogprob] = field(default_factory=list)
    _finish: str = ""
    _error: RequestError | None = None
    _told_waiting: bool = False  # a delta without text is due
    _last_sent: float = 0.0  # text

    def __post_init__(self) -> None:
        terms, tier = self.request.terms, self.tier
        self.deadline = self._due(terms.deadline_ms, tier.deadline_ms)
        self.ttft_deadline = min(self.deadline, self._due(terms.ttft_deadline_ms, tier.ttft_deadline_ms))
        self._heard = self.arrived  # when the client was last sent anything
        self._holds = self.request.form.is_checked  # what may turn out not to be in its form is sent whole
        if self.request.trace:
            self.trace = RequestTrace(self.arrived)

    def ticket(self, id: int) -> Ticket:
        """The ticket of a generation that is begun for it, on its terms."""
        return Ticket(
            id=id,
            prompt_tokens=len(self.prompt_ids),
            max_tokens=self.request.sampling.max_tokens,
            tier=self.tier,
            tier_name=self.tier_name,
            priority=self.priority,
            prefix=hash(
                (self.cache_salt, self.request.sampling.lora_name, *self.prompt_ids[:_PREFIX_TOKENS])
            ),
            arrived=self.arrived,
            ttft_deadline=self.ttft_deadline,
            bound="deadline_ms" if self.ttft_deadline == self.deadline else "ttft_deadline_ms",
            tenant=self.request.terms.tenant,
        )

    def engine_request(self, id: int, adapter: Adapter | None = None) -> EngineRequest:
        """A sequence of its own, as the engine takes it."""
        sampling, salt = self.request.sampling, self.cache_salt
        return EngineRequest(id, self.prompt_ids, sampling, salt, adapter, self.public_tokens)

    def too_late(self, now: float, *, ttft_deadlines: bool) -> Unavailable | None:
        """Why a request without any text cannot be answered in time any more.

        Args:
            ttft_deadlines: whether a first text that comes too late ends a request.
        """
        waited = now - self.arrived
        if now > self.deadline and not self.completion_tokens:
            return Unavailable(f"deadline_ms passed: no text yet after {waited * 1e3:.0f} ms")
        if not ttft_deadlines or not self.generation:
            return None
        ticket = self.generation.ticket
        # A shared generation expires on the latest deadline of its listeners; this one's may be earlier.
        if ticket.started or self.ttft_deadline >= min(now, ticket.expires):
            return None
        problem = f"ttft_deadline_ms cannot be kept any more after {waited * 1e3:.0f} ms in the queue"
        return Unavailable(problem, bounded(waited))

    def client_left(self) -> bool:
        """Whether the client cancelled or left. Asks the sink: not to be called under the lock."""
        try:
            return self.sink.is_cancelled()
        except Exception:
            # A client that cannot be asked cannot be answered; the cancellation of others must go on.
            logger.exception("a client cannot be asked", extra={"request_id": self.request_id})
            return True

    def push(
        self,
        text: str,
        tokens: int,
        finish_reason: str,
        cached_tokens: int = 0,
        logprobs: Sequence[TokenLogprob] = (),
        reasoning: str = "",
    ) -> None:
        """Takes new text, and ends the request if there is a finish_reason."""
        if self.ended:
            return
        # Its own prompt may be a few blanks shorter than that of the request that began the generation.
        self.cached_tokens = min(cached_tokens, len(self.prompt_ids))
        self.completion_tokens += tokens
        if self.trace and (finish_reason if self._holds else text or reasoning):
            self.trace.text(self.completion_tokens)
        self._pending += text
        self._pending_reasoning += reasoning
        self._pending_logprobs += logprobs
        if finish_reason:
            self._finish = finish_reason
            self.ended = True

    def waits(self, now: float, stepped: float) -> bool:
        """Has a delta without text sent, if nothing was for a while; True: it has.

        Only for an engine that `stepped` since: of one that stands still the client is to hear nothing.
        """
        if self.ended or self.sending or now - self._heard < _QUIET_S or stepped <= self._heard:
            return False
        self._told_waiting = True
        return True

    def answer(self, hit: Hit) -> None:
        """Takes a whole answer from the cache, and ends the request."""
        if not self.ended:
            self._cache, self._similarity = hit.kind, hit.similarity
            self.push(hit.entry.answer, hit.entry.completion_tokens, hit.entry.finish_reason)

    def fail(self, error: RequestError) -> bool:
        """Ends the request with an error and drops unsent text; False: it had ended before."""
        if self.ended:
            return False
        self.break_off(error)
        return True

    def break_off(self, error: RequestError | None) -> None:
        """Replaces all that was to come, the end too; None: nothing comes, as `submit` raises the error."""
        self._drop_unsent()
        self._error = error
        self.ended = True

    def take(self) -> Delta | RequestError | None:
        """What is ready to be sent, once: a delta, the error that ends the request, or None, unqueued."""
        if self._error:
            error, self._error = self._error, None
            return error
        said = (self._pending or self._pending_reasoning) and not self._holds
        if not (said or self._finish):
            told, self._told_waiting = self._told_waiting, False
            if told:  # log probabilities go with their text
                return Delta("", "", len(self.prompt_ids), self.cached_tokens, self.completion_tokens)
            self.sending = False
            return None
        delta = Delta(
            self._pending,
            self._finish,
            len(self.prompt_ids),
            self.cached_tokens,
            self.completion_tokens,
            self._note() if self._finish else None,
            None if self.request.sampling.logprobs is None else self._pending_logprobs,
            self.prompt_logprobs,
            self._pending_reasoning,
            self.reasoning_tokens,
        )
        self._drop_unsent()
        return delta

    @property
    def wants_fresh(self) -> bool:
        """Whether its answer is to be generated for it, whatever is stored or under way."""
        return "no-cache" in self.request.terms.cache_control

    @property
    def unsent(self) -> str:
        """Words that wait to be sent: of an answer that is checked all so far."""
        return self._pending

    def take_back(self) -> None:
        """Drops what waits to be sent of an answer that is made again."""
        self._pending, self._pending_reasoning, self._pending_logprobs = "", "", []

    def sent(self, item: Delta | RequestError, metrics: LlmMetrics) -> None:
        """Measures a response that was sent just now. Called by one sender at a time."""
        now = self._heard = time.perf_counter()
        if isinstance(item, RequestError):
            metrics.outcome(item.code.lower())
            if self.completion_tokens:
                saved = bool(self._cache or self.shared or self.handed_on)
                metrics.tokens(len(self.prompt_ids), self.cached_tokens, self.completion_tokens, saved=saved)
            return
        if item.text or item.reasoning:
            if self._last_sent:
                metrics.itl.observe(now - self._last_sent)
            else:
                metrics.ttft.observe(now - self.arrived)
                if math.isfinite(self.predicted_ttft):
                    metrics.prediction_error.observe(abs(now - self.arrived - self.predicted_ttft))
                if self.started:  # else the cache answered
                    metrics.queue.observe(max(0.0, self.started - self.arrived))
            self._last_sent = now
        if item.finish_reason:
            metrics.e2e.observe(now - self.arrived)
            metrics.outcome(item.finish_reason)
            saved = self.handed_on or bool(item.note and item.note.cache)
            metrics.tokens(item.prompt_tokens, item.cached_tokens, item.completion_tokens, saved=saved)

    def _due(self, wanted_ms: int | None, tier_ms: int) -> float:
        milliseconds = tier_ms if wanted_ms is None else wanted_ms
        return self.arrived + milliseconds / 1e3 if milliseconds else math.inf

    def _drop_unsent(self) -> None:
        self.take_back()
        self._finish, self._told_waiting, self.prompt_logprobs = "", False, ()

    def _note(self) -> Note:
        return Note(
            cache=self._cache or ("coalesced" if self.shared else ""),
            similarity=self._similarity,
            trimmed=self.trimmed,
            queue_s=max(0.0, self.started - self.arrived) if self.started else 0.0,
            predicted_ttft_s=self.predicted_ttft,
            trace=self.trace.spans(self.started) if self.trace else (),
        )
