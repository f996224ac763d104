"""One client's request on its way: what is ready for it and not yet handed on. Dropped whole at its end.

A slow transport gets fewer, longer deltas instead of a backlog. Where the text comes
from (a generation, perhaps shared, or the cache) is not its affair; it starts and ends
nothing by itself.
"""

from __future__ import annotations

import math
import sys
import time
import traceback

from trimodal.cache.values import Hit, Question
from trimodal.errors import RequestError
from trimodal.llm.detokenizer import TextStream
from trimodal.llm.engines.protocol import EngineRequest
from trimodal.llm.request.outputs import Delta, Note, Sink
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.request.tiers import Tier
from trimodal.llm.scheduler import Ticket

_MOST_LISTENERS = 1024
"""Those who listen wait in no queue: without a bound, one prompt sent for ever would fill the memory."""


class Generation:
    """Guarded by the service's lock. `question` is what the cache would keep its answer under."""

    def __init__(
        self, ticket: Ticket, first: Stream, text: TextStream, question: Question | None = None
    ) -> None:
        self.ticket = ticket
        self.question = question
        self.storable = question is not None
        self.streams: list[Stream] = []
        self.prompt_ids = first.prompt_ids
        self.sampling = first.request.sampling
        self.finish_reason = ""
        self._text = text
        # What was said so far is only needed by those who come later and by the cache.
        self._said: list[str] | None = [] if question else None
        self.join(first)

    @property
    def id(self) -> int:
        return self.ticket.id

    @property
    def answer(self) -> str:
        """What was said so far; only kept where there is a question."""
        return "".join(self._said or ())

    def engine_request(self) -> EngineRequest:
        """What the engine is handed."""
        return EngineRequest(self.id, self.prompt_ids, self.sampling)

    def suits(self, stream: Stream) -> bool:
        """Whether a stream may listen, and will not wait for it longer than for a generation of its own."""
        if len(self.streams) >= _MOST_LISTENERS:
            return False
        # What waits takes its blocks out of the first one's tier's share: a bigger share may be free now.
        return bool(self.ticket.started) or stream.tier.kv_share <= self.ticket.tier.kv_share

    def join(self, stream: Stream) -> None:
        """One more listener; it gets what was said so far."""
        stream.generation = self
        stream.shared = bool(self.ticket.completion_tokens or self.streams)
        stream.predicted_ttft = self._foreseen(stream)
        if "no-store" in stream.request.terms.cache_control:
            self.storable = False
        self.streams.append(stream)
        if self.ticket.started:
            stream.started = self.ticket.started
        if self.ticket.completion_tokens:
            stream.push(self.answer, self.ticket.completion_tokens, "", self.ticket.cached_tokens)

    def leave(self, stream: Stream) -> bool:
        """One listener less; True when nobody listens any more."""
        self.streams.remove(stream)
        stream.generation = None
        if self.streams and not stream.shared and not self.finish_reason:
            # Whom it was generated for has gone: from now on it is for the next.
            self.streams[0].shared = False
        return not self.streams

    def handed_over(self) -> None:
        """The engine has it now."""
        for stream in self.streams:
            stream.started = self.ticket.started
            stream.predicted_ttft = self._foreseen(stream)

    def push(self, token_ids: list[int], finish_reason: str | None, cached_tokens: int) -> bool:
        """Takes what a step made and gives it to all; True when the answer is complete."""
        text, stopped = self._text.push(token_ids, last=finish_reason is not None)
        self.finish_reason = "stop" if stopped else finish_reason or ""
        if self._said is not None:
            self._said.append(text)
        for stream in self.streams:
            stream.push(text, len(token_ids), self.finish_reason, cached_tokens)
        return bool(self.finish_reason)

    def _foreseen(self, stream: Stream) -> float:
        """Seconds from the stream's own arrival to its first text; nan: not foreseen."""
        if self.ticket.completion_tokens:
            return 0.0
        seconds = self.ticket.arrived + self.ticket.predicted_ttft - stream.arrived
        return seconds if math.isnan(seconds) else max(0.0, seconds)


class Stream:
    """State of one client's request. Guarded by the service's lock, except what the courier sends."""

    def __init__(
        self,
        request: GenerationRequest,
        prompt_ids: list[int],
        sink: Sink,
        *,
        arrived: float | None = None,
        tier: Tier | None = None,
        tier_name: str = "standard",
        priority: int = 0,
        deadline: float = math.inf,
        trimmed: str = "",
    ) -> None:
        self.request = request
        self.prompt_ids = prompt_ids
        self.sink = sink
        self.arrived = time.perf_counter() if arrived is None else arrived
        self.tier = tier or Tier()
        self.tier_name = tier_name
        self.priority = priority
        self.deadline = deadline
        self.started = 0.0
        self.last_sent = 0.0
        self.predicted_ttft = math.nan
        self.cached_tokens = 0
        self.completion_tokens = 0
        self.ended = False
        self.at_courier = False
        self.generation: Generation | None = None
        self.shared = False
        self._trimmed = trimmed
        self._cache, self._similarity = "", 0.0
        self._pending = ""
        self._pending_tokens = 0
        self._finish = ""
        self._error: RequestError | None = None

    def client_left(self) -> bool:
        """Whether the client cancelled or left. Asks the sink: not to be called under the lock."""
        try:
            return self.sink.is_cancelled()
        except Exception:
            # Who cannot even be asked cannot be answered; and the others' cancellation must go on.
            traceback.print_exc(file=sys.stderr)
            return True

    def push(self, text: str, tokens: int, finish_reason: str, cached_tokens: int = 0) -> None:
        """Takes new text, and with it the end of the answer when there is a finish_reason."""
        # Its own prompt may be shorter by a few blanks than that of the one who asked first.
        self.cached_tokens = min(cached_tokens, len(self.prompt_ids))
        self.completion_tokens += tokens
        self._pending += text
        self._pending_tokens += tokens
        if finish_reason:
            self._finish = finish_reason
            self.ended = True

    def answer(self, hit: Hit) -> None:
        """Takes a whole answer out of the cache."""
        self._cache, self._similarity = hit.kind, hit.similarity
        self.push(hit.entry.answer, hit.entry.completion_tokens, hit.entry.finish_reason)

    def fail(self, error: RequestError) -> None:
        """Ends the request with an error; text that waits is dropped."""
        self._error = error
        self._pending, self._finish, self._pending_tokens = "", "", 0
        self.ended = True

    def take(self) -> Delta | RequestError | None:
        """What is ready to be sent, once: a delta, the error that ends it, or None."""
        if self._error:
            error, self._error = self._error, None
            return error
        if not self._pending and not self._finish:
            return None
        delta = Delta(
            self._pending,
            self._finish,
            len(self.prompt_ids),
            self.cached_tokens,
            self.completion_tokens,
            self._pending_tokens,
            self._note() if self._finish else None,
        )
        self._pending, self._finish, self._pending_tokens = "", "", 0
        return delta

    def _note(self) -> Note:
        return Note(
            cache=self._cache or ("coalesced" if self.shared else ""),
            similarity=self._similarity,
            trimmed=self._trimmed,
            queue_s=max(0.0, self.started - self.arrived) if self.started else 0.0,
            predicted_ttft_s=self.predicted_ttft,
        )
