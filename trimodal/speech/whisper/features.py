"""Computes Whisper's log-mel features of a window, padded to an encoder context.

A checkpoint was trained on one of two paddings: silence added to the samples (OpenAI's, as openai-whisper and
transformers have it), or zeros added to the features (as faster-whisper does it).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trimodal.audio.values import SAMPLE_RATE, Samples

HOP = 160
FFT = 400
FRAMES_PER_S = SAMPLE_RATE // HOP
# Power below this is silence; what is 8 decades below the loudest is not told apart.
FLOOR, DECADES = 1e-10, 8.0
BLOCK = 64

Features = NDArray[np.float32]
Padding = Literal["silence", "zeros"]


def log_mel(samples: Samples, context_s: float, bands: int, padding: Padding = "silence") -> Features:
    """float32[bands, 100 · context_s] of float32[n] at 16 kHz, n ≤ 16,000 · context_s (ValueError: more).

    With silence the numbers are those of transformers' WhisperFeatureExtractor for that
    length; with zeros they are those of faster-whisper: 0 where no whole frame of samples is left.
    """
    frames = round(context_s * FRAMES_PER_S)
    length = frames * HOP
    if len(samples) > length:
        raise ValueError(f"{len(samples)} samples do not fit into {context_s} s")
    # The frames that touch a sample, and one of pure silence for all the others.
    heard = min(frames, (len(samples) + FFT // 2) // HOP + 2)
    stretches = np.lib.stride_tricks.sliding_window_view(_reflected(samples, length, heard), FFT)[::HOP]
    logs = np.empty((heard, bands), np.float32)
    hann, filters = _hann(), mel_filters(bands)
    # In blocks that stay in the cache: twice as fast as all frames at once.
    for first in range(0, heard, BLOCK):
        spectrum = np.fft.rfft(stretches[first : min(first + BLOCK, heard)] * hann)
        power = (spectrum.real**2 + spectrum.imag**2).astype(np.float32)
        logs[first : first + BLOCK] = power @ filters
    np.log10(np.maximum(logs, FLOOR, out=logs), out=logs)
    least = max(float(logs.max()), np.log10(FLOOR)) - DECADES
    features = np.full((bands, frames), max(np.log10(FLOOR), least), np.float32)
    features[:, :heard] = np.maximum(logs, least, out=logs).T
    features += 4
    features /= 4
    if padding == "zeros":
        features[:, len(samples) // HOP :] = 0
    return features


def _reflected(samples: Samples, length: int, frames: int) -> Samples:
    """What the first frames see of `length` samples: the window, then silence, mirrored at both ends."""
    half = FFT // 2
    seen = np.zeros(frames * HOP + FFT, np.float32)
    seen[half : half + len(samples)] = samples[: len(seen) - half]
    seen[:half] = seen[FFT:half:-1]
    if len(seen) == length + FFT:
        seen[length + half :] = seen[length + half - 2 : length - 2 : -1]
    return seen


def log_mel_batch(
    windows: Sequence[Samples], context_s: float, bands: int, padding: Padding = "silence"
) -> Features:
    """float32[len(windows), bands, frames]: `log_mel` of each."""
    return np.stack([log_mel(samples, context_s, bands, padding) for samples in windows])


def smallest_context(contexts_s: Sequence[float], samples: int) -> float:
    """The first of ascending `contexts_s` in which so many samples are heard. Raises ValueError: none."""
    for context_s in contexts_s:
        if samples <= room(context_s, contexts_s[-1]):
            return context_s
    raise ValueError(f"{samples} samples do not fit into {contexts_s[-1]} s")


def room(context_s: float, longest_s: float) -> int:
    """Samples that are heard in a context: all of the longest, five sixths of a shorter one.

    A Whisper, which was trained on 30 s, does not find the end of a shorter context that is full:
    whisper-base wrote sentences twice in windows of 9 to 10 s in a context of 10 s (word error rate 28 %),
    and not in one of 12 s (11 %).
    """
    samples = round(context_s * SAMPLE_RATE)
    return samples if context_s == longest_s else samples * 5 // 6


@lru_cache
def mel_filters(bands: int) -> NDArray[np.float32]:
    """float32[201, bands]: triangles on Slaney's mel scale, each of area one, from 0 to 8 kHz."""
    bins = np.fft.rfftfreq(FFT, 1 / SAMPLE_RATE)
    # Linear up to 1 kHz (mel 15), then 27 mels for each factor of 6.4.
    top = 15 + 27 * np.log(SAMPLE_RATE / 2 / 1000) / np.log(6.4)
    mels = np.linspace(0, top, bands + 2)
    edges = np.where(mels < 15, mels * 200 / 3, 1000 * np.exp((mels - 15) * np.log(6.4) / 27))
    low, centre, high = edges[:-2], edges[1:-1], edges[2:]
    rising = (bins[:, None] - low) / (centre - low)
    falling = (high - bins[:, None]) / (high - centre)
    weights = np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)
    return np.asarray(weights, np.float32)


@lru_cache
def _hann() -> NDArray[np.float64]:
    return np.hanning(FFT + 1)[:-1]
