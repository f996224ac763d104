"""One sequence in the queue or the engine, and the clients that listen to it: it lives while one does.

It turns tokens into text once, for all of them. Who may listen is decided elsewhere.
"""

from __future__ import annotations

import math

from trimodal.cache.values import Question
from trimodal.llm.detokenize import TextStream
from trimodal.llm.engine import EngineRequest
from trimodal.llm.scheduler import Ticket
from trimodal.llm.stream import Stream

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
