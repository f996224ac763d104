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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from trimodal.cache.values import Hit
from trimodal.errors import RequestError
from trimodal.llm.request import GenerationRequest
from trimodal.llm.tiers import Tier

if TYPE_CHECKING:
    from trimodal.llm.generation import Generation


@dataclass(frozen=True)
class Note:
    """How an answer came about; told once, with its last delta.

    Attributes:
        cache: "exact", "semantic", "coalesced" (generated for somebody who asked the same), or "".
        similarity: cosine of this question and the stored one; 1 for an exact hit, 0 without a hit.
        trimmed: what the prompt lost to its tier's budget, as JSON; "" when nothing.
        queue_s: arrival to the engine, seconds.
        predicted_ttft_s: TTFT as foreseen at admission, seconds; nan when it was not.
    """

    cache: str = ""
    similarity: float = 0.0
    trimmed: str = ""
    queue_s: float = 0.0
    predicted_ttft_s: float = math.nan


@dataclass(frozen=True)
class Delta:
    """New text of an answer, with the usage so far; `finish_reason` is empty until the last one.

    `tokens` counts the completion tokens behind this delta alone; the last one has a `note`.
    """

    text: str
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    tokens: int
    note: Note | None = None


class Sink(Protocol):
    """Where an answer goes. Calls come one at a time, the last one is `fail` or a delta that finishes."""

    def send(self, delta: Delta) -> None: ...

    def fail(self, error: RequestError) -> None: ...

    def is_cancelled(self) -> bool:
        """Whether the client has given up or gone."""


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
