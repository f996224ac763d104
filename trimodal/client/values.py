"""Defines the typed values that a client returns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from trimodal.audio.values import Correction, HeardWindow, Word
from trimodal.client.timing import Timing


class _RoleAndContent(TypedDict):
    role: str
    content: str


class Message(_RoleAndContent, total=False):
    """One entry of a chat; role is system, user, assistant or tool.

    An assistant's may have `tool_calls` as OpenAI has them, a tool's has `tool_call_id`.
    """

    tool_calls: Sequence[Mapping[str, Any]]
    tool_call_id: str


class Turn(Message, total=False):
    """A turn of a talk with the assistant, with what it told of that turn's audio and image then."""

    heard: str
    labels: Sequence[Prediction]


@dataclass(frozen=True)
class Usage:
    """Tokens of one request: `cached` of the prompt were in the prefix cache, `reasoning` are of thoughts."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    reasoning: int = 0


@dataclass(frozen=True)
class TokenLogprob:
    """One token of an answer.

    Attributes:
        token: its text; of part of a character its bytes, as \\xf0.
        bytes: what it adds to the answer, UTF-8. Those of all tokens, joined, are the answer's text.
        logprob: natural logarithm of the model's probability, before temperature, penalties and filters; nan:
            there is none, as of the first token of a prompt.
        top: the most likely tokens in its place, best first.
    """

    token: str
    bytes: bytes
    logprob: float
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Delta:
    """New text of an answer and how many tokens it stands for; `finish_reason` is empty until the last.

    `logprobs` are of the tokens of this text, if `top_logprobs` was given. `reasoning` is what the
    model thinks before its words.
    """

    text: str
    tokens: int
    finish_reason: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()
    reasoning: str = ""


@dataclass(frozen=True)
class Note:
    """How an answer came about.

    Attributes:
        cache: exact, semantic, coalesced (shared with another request that asked the same), or empty.
        similarity: cosine of the question and the stored one; 1 for an exact hit, 0 without a hit.
        trimmed: what the chat lost because it was too long, as {"messages": 4, "tokens": 812}.
        queue_ms: arrival to the engine.
        predicted_ttft_ms: the server's forecast when it let the request in; nan when it made none.
    """

    cache: str = ""
    similarity: float = 0.0
    trimmed: Mapping[str, int] = field(default_factory=dict)
    queue_ms: float = 0.0
    predicted_ttft_ms: float = math.nan


@dataclass(frozen=True)
class Answer:
    """A whole answer. `finish_reason` is stop, length, deadline or cancelled; `logprobs` as Delta's."""

    text: str
    finish_reason: str
    usage: Usage = field(default_factory=Usage)
    timing: Timing = field(default_factory=Timing)
    note: Note = field(default_factory=Note)
    logprobs: tuple[TokenLogprob, ...] = ()
    reasoning: str = ""


@dataclass(frozen=True)
class Embeddings:
    """Vectors of unit length, float32[N, d], and how many tokens of the texts were read in all."""

    vectors: NDArray[np.float32]
    tokens: int


@dataclass(frozen=True)
class Prediction:
    """One label of an image; `score` is a probability, 0 to 1."""

    label: str
    score: float


@dataclass(frozen=True)
class AudioFindings:
    """What the assistant heard in the audio of a question."""

    text: str


@dataclass(frozen=True)
class ImageFindings:
    """What the assistant saw in the image of a question, best label first."""

    labels: tuple[Prediction, ...]


@dataclass(frozen=True)
class LiveUpdate:
    """What is new in a live stream after a chunk.

    Attributes:
        committed: words that are new; they stay as they are but for `corrections`; times in seconds since the
            stream began.
        text: the same words as text. The texts of all updates, joined, are the transcript as it was heard at
            once; `LiveStream.text` has the corrections, too.
        tentative: the whole guess, at present, of what comes after all committed words.
        received_s: seconds of audio that the server has taken in.
        lag_s: `received_s` less the end of the last committed word; 0 before the first.
        final: whether it answers the end of the stream.
        windows: what the recogniser told of the windows that `committed` was heard in.
        corrections: of committed words, these included: their speaker paused, and all was heard as a whole.
    """

    committed: tuple[Word, ...] = ()
    text: str = ""
    tentative: str = ""
    received_s: float = 0.0
    lag_s: float = 0.0
    final: bool = False
    windows: tuple[HeardWindow, ...] = ()
    corrections: tuple[Correction, ...] = ()


@dataclass(frozen=True)
class Transcript:
    """A whole recording as text; `seconds` is its length."""

    words: tuple[Word, ...]
    text: str
    seconds: float


@dataclass(frozen=True)
class Model:
    """A model that the server has ready, and how many inferences it has made since it was loaded."""

    name: str
    version: str
    inferences: int
