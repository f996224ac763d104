"""Values that a client of the llm gets, as output tensors too, and the sink that takes them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trimodal import trace
from trimodal.errors import RequestError
from trimodal.trace import Span


@dataclass(frozen=True)
class Note:
    """How an answer came about; sent with its last delta."""

    cache: str = ""  # "exact", "semantic", "coalesced" (generated for another who asked the same), or ""
    similarity: float = 0.0  # cosine of this question and the stored one; 1 for an exact hit, 0 without a hit
    trimmed: str = ""  # what the prompt lost to its tier's budget, as JSON; "" when nothing
    queue_s: float = 0.0  # arrival to the engine, seconds
    predicted_ttft_s: float = math.nan  # TTFT as predicted at admission, seconds; nan when it was not
    trace: Sequence[Span] = ()  # what took how long, for a client that wants it


@dataclass(frozen=True)
class TokenLogprob:
    """One token of an answer: the bytes of UTF-8 that it stands for, maybe part of a character.

    Attributes:
        logprob: natural, at most 0; nan: there is none, as of the first token of a prompt.
        top: the most likely tokens in its place, best first.
    """

    token: bytes
    logprob: float
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Delta:
    """New text of an answer, with the usage so far; `finish_reason` is empty until the last one.

    The last one has a `note`. `logprobs` are of the tokens of this text; None: not asked for. The first one
    has `prompt_logprobs`, if they were. `reasoning` is what the model thinks before its words; of the
    `completion_tokens` so far it took `reasoning_tokens`.
    """

    text: str
    finish_reason: str
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    note: Note | None = None
    logprobs: Sequence[TokenLogprob] | None = None
    prompt_logprobs: Sequence[TokenLogprob] = ()
    reasoning: str = ""
    reasoning_tokens: int = 0


def columns(delta: Delta) -> dict[str, NDArray[Any]]:
    """Tensor name → array [1]; the names and types of model_repository/llm/config.pbtxt.

    `predicted_ttft_ms` is -1 when it was not predicted.
    """
    rows: dict[str, tuple[Any, type]] = {
        "text_output": (delta.text.encode(), np.object_),
        "finish_reason": (delta.finish_reason.encode(), np.object_),
        "prompt_tokens": (delta.prompt_tokens, np.int32),
        "cached_tokens": (delta.cached_tokens, np.int32),
        "completion_tokens": (delta.completion_tokens, np.int32),
    }
    if delta.logprobs is not None:
        rows["logprobs"] = (json.dumps([_entry(one) for one in delta.logprobs]).encode(), np.object_)
    if delta.reasoning:
        rows["reasoning"] = (delta.reasoning.encode(), np.object_)
    if delta.reasoning_tokens:
        rows["reasoning_tokens"] = (delta.reasoning_tokens, np.int32)
    if told := delta.prompt_logprobs:
        rows["prompt_logprobs"] = (json.dumps([_entry(one) for one in told]).encode(), np.object_)
    if note := delta.note:
        # JSON has no nan, and Triton's HTTP endpoint would write one all the same.
        predicted = note.predicted_ttft_s * 1e3 if math.isfinite(note.predicted_ttft_s) else -1.0
        rows |= {
            "cache": (note.cache.encode(), np.object_),
            "similarity": (note.similarity, np.float32),
            "trimmed": (note.trimmed.encode(), np.object_),
            "queue_ms": (note.queue_s * 1e3, np.float32),
            "predicted_ttft_ms": (predicted, np.float32),
        }
    tensors: dict[str, NDArray[Any]] = {name: np.array([value], kind) for name, (value, kind) in rows.items()}
    return tensors | trace.column(delta.note.trace) if delta.note and delta.note.trace else tensors


def _entry(one: TokenLogprob) -> dict[str, Any]:
    """As OpenAI's API has it."""
    return {**_token(one), "top_logprobs": [_token(other) for other in one.top]}


def _token(one: TokenLogprob) -> dict[str, Any]:
    text = one.token.decode(errors="backslashreplace")  # part of a character: its bytes, as \xf0
    logprob = None if math.isnan(one.logprob) else one.logprob
    return {"token": text, "bytes": list(one.token), "logprob": logprob}


class Sink(Protocol):
    """Where an answer goes. Calls come one at a time, the last one is `fail` or a delta that finishes."""

    def send(self, delta: Delta) -> None: ...

    def fail(self, error: RequestError) -> None: ...

    def is_cancelled(self) -> bool:
        """Whether the client has cancelled or disconnected."""


class WholeAnswer:
    """Gathers an answer and hands it to a sink in one delta, after `prefix`."""

    def __init__(self, sink: Sink, prefix: str = "") -> None:
        self._sink = sink
        self._texts = [prefix]
        self._reasoning: list[str] = []
        self._logprobs: list[TokenLogprob] | None = None
        self._prompt_logprobs: Sequence[TokenLogprob] = ()

    def send(self, delta: Delta) -> None:
        self._texts.append(delta.text)
        self._reasoning.append(delta.reasoning)
        self._prompt_logprobs = self._prompt_logprobs or delta.prompt_logprobs
        if delta.logprobs is not None:
            self._logprobs = self._logprobs or []
            self._logprobs += delta.logprobs
        if delta.finish_reason:
            whole = replace(delta, text="".join(self._texts), reasoning="".join(self._reasoning))
            self._sink.send(replace(whole, logprobs=self._logprobs, prompt_logprobs=self._prompt_logprobs))

    def fail(self, error: RequestError) -> None:
        self._sink.fail(error)

    def is_cancelled(self) -> bool:
        return self._sink.is_cancelled()
