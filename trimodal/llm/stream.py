"""One request on its way: from the queue through the engine to its client. Dropped whole at its end.

It holds the text that is ready and not yet handed on, so that a slow transport gets
fewer, longer deltas instead of a backlog. It starts and ends nothing by itself.
"""

from __future__ import annotations

import math
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Protocol

from trimodal.errors import RequestError
from trimodal.llm.detokenize import TextStream
from trimodal.llm.request import GenerationRequest


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
    """State of one request. Guarded by the service's lock, except what the courier sends."""

    def __init__(
        self, id: int, request: GenerationRequest, prompt_ids: list[int], text: TextStream, sink: Sink
    ) -> None:
        self.id = id
        self.request = request
        self.prompt_ids = prompt_ids
        self.sink = sink
        self.arrived = time.perf_counter()
        self.started = 0.0
        self.last_sent = 0.0
        self.cached_tokens = 0
        self.completion_tokens = 0
        self.ended = False
        self.at_courier = False
        self._text = text
        self._pending = ""
        self._pending_tokens = 0
        self._finish = ""
        self._error: RequestError | None = None

    @property
    def max_tokens(self) -> int:
        """Longest answer, in tokens."""
        return self.request.sampling.max_tokens

    def client_left(self) -> bool:
        """Whether the client cancelled or left. Asks the sink: not to be called under the lock."""
        try:
            return self.sink.is_cancelled()
        except Exception:
            # Who cannot even be asked cannot be answered; and the others' cancellation must go on.
            traceback.print_exc(file=sys.stderr)
            return True

    def push(self, token_ids: list[int], finish_reason: str | None) -> bool:
        """Takes what a step made; True when the answer is complete (also by a stop string)."""
        text, stopped = self._text.push(token_ids, last=finish_reason is not None)
        self.completion_tokens += len(token_ids)
        self._pending += text
        self._pending_tokens += len(token_ids)
        if stopped or finish_reason:
            self._finish = "stop" if stopped else finish_reason or ""
            self.ended = True
        return self.ended

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
        )
        self._pending, self._finish, self._pending_tokens = "", "", 0
        return delta
