"""Judges whether speculation wins: its tokens per second against plain decoding at the same batch size.

Plain step times are measured once, when the engine opens. The verdict is final for an opened engine: a server
that goes back and forth would be harder to predict than either choice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import median

import numpy as np

_WINDOW = 128
"""Steps that are judged together: seconds of decoding with a model that is worth speculating for."""

_MARGIN = 0.97  # a speed-up below this is a loss; between it and 1 the measurement could be noise


class SpeculationJudge:
    """Collects decode-only steps and compares.

    Args:
        plain_step_seconds: batch size → seconds of a plain decoding step.
    """

    def __init__(self, plain_step_seconds: Mapping[int, float]) -> None:
        self._batches, self._seconds = zip(*sorted(plain_step_seconds.items()), strict=True)
        self._window: deque[tuple[int, int, float]] = deque(maxlen=_WINDOW)
        self.loses = False

    def observe(self, sequences: int, tokens: int, seconds: float) -> None:
        """One step in which `sequences` sequences got `tokens` tokens in `seconds` seconds."""
        self._window.append((sequences, tokens, seconds))
        if len(self._window) == _WINDOW and self.speedup < _MARGIN:
            self.loses = True

    @property
    def speedup(self) -> float:
        """Time that plain decoding would have taken for a step's tokens, over the time it took; the median.

        The median, because the plain times are medians too, and on a shared machine a few steps take
        many times as long as the rest.
        """
        return median(
            tokens / sequences * self.plain_seconds(sequences) / seconds
            for sequences, tokens, seconds in self._window
        )

    @property
    def note(self) -> str:
        """One line for people: the measured speed-up and tokens per step."""
        per_step = sum(entry[1] for entry in self._window) / sum(entry[0] for entry in self._window)
        return f"{self.speedup:.2f} x plain decoding, {per_step:.2f} tokens per step"

    def plain_seconds(self, sequences: float) -> float:
        """Plain step time at a batch size: linear between the measured ones, the nearest beyond them."""
        return float(np.interp(sequences, self._batches, self._seconds))
