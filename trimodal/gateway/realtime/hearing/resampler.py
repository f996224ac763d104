"""Brings a stream of samples to 16 kHz, each as soon as it can be known.

soxr works in blocks, and gave back what it was given 6 to 37 ms later at 24 kHz and up to 115 ms later at
8 kHz: with chunks of 100 ms, words came a whole chunk later. This filter is 2.5 and 7.5 ms late.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from trimodal.audio.values import SAMPLE_RATE, Samples

_TAPS = 241
_BETA = 7.0  # of Kaiser's window: what would be mirrored is 70 dB down


class Resampler:
    """A windowed sinc, for rates of a few kHz to 48 kHz that have a large divisor in common with 16 kHz."""

    def __init__(self, rate: int) -> None:
        common = math.gcd(rate, SAMPLE_RATE)
        self._up, self._down = SAMPLE_RATE // common, rate // common
        self._taps = _low_pass(min(rate, SAMPLE_RATE) / (rate * self._up), self._up)
        # As many seconds come out as went in, each half a filter late: a stream that lacked a few samples
        # of a step of the recogniser's would wait a whole chunk for it.
        self._held = np.zeros(_TAPS - 1, np.float32)

    def __call__(self, samples: Samples) -> Samples:
        """What can be known of them at 16 kHz."""
        if self._up == self._down:
            return samples
        stuffed = np.zeros(len(samples) * self._up, np.float32)
        stuffed[:: self._up] = samples
        self._held = np.concatenate((self._held, stuffed))
        if not len(samples):
            return samples
        heard: Samples = np.convolve(self._held, self._taps, "valid")[:: self._down]
        self._held = self._held[len(heard) * self._down :]
        return heard

    def finish(self) -> Samples:
        """The rest."""
        if self._up == self._down:
            return np.zeros(0, np.float32)
        return self(np.zeros(math.ceil(_TAPS // 2 / self._up), np.float32))


def _low_pass(band: float, gain: int) -> NDArray[np.float32]:
    """Taps that keep `band` of all frequencies, less what the filter needs to fall off."""
    edge = band - (_BETA / 2.0 + 0.5) / _TAPS
    at = np.arange(_TAPS) - _TAPS // 2
    taps: NDArray[np.float64] = np.sinc(edge * at) * np.kaiser(_TAPS, _BETA)
    return np.asarray(taps / taps.sum() * gain, np.float32)
