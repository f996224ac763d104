"""Defines timed words and audio samples, which speech, its clients and the commands share."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    """

    text: str
    start: float
    end: float
    probability: float

    def shifted(self, seconds: float) -> Word:
        """The same word on a clock that began `seconds` earlier."""
        return replace(self, start=self.start + seconds, end=self.end + seconds)


PolicyName = Literal["live", "agreement", "vad", "window", "file"]
