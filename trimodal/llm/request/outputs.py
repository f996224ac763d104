"""Values that a client of the llm gets, and the sink that takes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from trimodal.errors import RequestError


@dataclass(frozen=True)
class Note:
    """How an answer came about; sent with its last delta.

    Attributes:
        cache: "exact", "semantic", "coalesced" (generated for another client with the same question), or "".
        similarity: cosine of this question and the stored one; 1 for an exact hit, 0 without a hit.
        trimmed: what the prompt lost to its tier's budget, as JSON; "" when nothing.
        queue_s: arrival to the engine, seconds.
        predicted_ttft_s: TTFT as predicted at admission, seconds; nan when it was not.
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
        """Whether the client has cancelled or disconnected."""
