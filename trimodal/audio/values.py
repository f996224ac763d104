"""Defines timed words and audio samples, which speech, its clients and the commands share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE = 16_000
Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Word:
    """A word as it is written, with the space before it if there is one (" lambda").

    Attributes:
        start, end: seconds from the beginning of the window or, in a stream, of the stream.
        probability: of its tokens, their mean, 0 to 1.
        tokens: of the recogniser's vocabulary; () where they are not told.
    """

    text: str
    start: float
    end: float
    probability: float
    tokens: tuple[int, ...] = ()

    def shifted(self, seconds: float) -> Word:
        """The same word on a clock that began `seconds` earlier."""
        return replace(self, start=self.start + seconds, end=self.end + seconds)


@dataclass(frozen=True, slots=True)
class HeardWindow:
    """What a recogniser tells of a window whose words became final; figures under faster-whisper's names.

    Attributes:
        start, end: seconds since the stream began.
        language, language_probability: that was detected, or given (1).
        language_probabilities: of a window in which it was detected, the likeliest first.
        doubted: the guard that no temperature satisfied, or "".
        rejected: why it has no words ("silence"), or "".
    """

    start: float
    end: float
    language: str
    language_probability: float
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    doubted: str = ""
    rejected: str = ""
    language_probabilities: Mapping[str, float] = field(default_factory=dict)


MOST_CORRECTED = 256  # committed words before the last one that a correction may reach back to


@dataclass(frozen=True, slots=True)
class Correction:
    """Words of a live stream as they were heard once their speaker paused, in place of committed ones.

    A later correction may take in what an earlier one did: it goes before it.

    Attributes:
        first, count: committed words `first` to `first + count` of the stream, as they came; at least one.
        words: instead of these; times in seconds since the stream began.
    """

    first: int
    count: int
    words: tuple[Word, ...]


PolicyName = Literal["edge", "vad", "file"]
Delay = Literal["minimal", "low", "medium", "high", "xhigh"]  # OpenAI's names
