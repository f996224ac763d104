"""Cuts windows that are longer than an engine's longest context, and joins what is heard in the pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.speech.values import Recognition

_FRAME = SAMPLE_RATE // 50  # loudness is that of 20 ms
_QUIET = 5  # frames that a cut wants to be quiet


def cut(samples: Samples, most: int) -> list[Samples]:
    """Pieces of at most `most` samples, each but the last cut where its last third is quietest."""
    pieces = []
    while len(samples) > most:
        first = most * 2 // 3
        frames = samples[first:most][: (most - first) // _FRAME * _FRAME].reshape(-1, _FRAME)
        loudness = np.convolve(np.square(frames).mean(axis=1), np.ones(_QUIET), "valid")
        at = first + (int(loudness.argmin()) + _QUIET // 2) * _FRAME
        pieces.append(samples[:at])
        samples = samples[at:]
    return [*pieces, samples]


def joined(pieces: Sequence[tuple[int, Recognition]]) -> Recognition:
    """One window's, of its pieces (samples, what was heard); its figures are those of the worst piece."""
    heard = [one for _, one in pieces]
    if len(heard) == 1:
        return heard[0]
    starts = np.cumsum([0, *(length for length, _ in pieces)]) / SAMPLE_RATE
    words = tuple(
        word.shifted(float(start)) for start, one in zip(starts, heard, strict=False) for word in one.words
    )
    spoken = [one for one in heard if one.words] or heard
    return replace(
        min(spoken, key=lambda one: one.average_log_probability),
        words=words,
        no_speech_probability=min(one.no_speech_probability for one in heard),
        compression_ratio=max(one.compression_ratio for one in spoken),
        temperature=max(one.temperature for one in spoken),
        doubted=next((one.doubted for one in heard if one.doubted), ""),
        rejected="" if words else next((one.rejected for one in heard if one.rejected), ""),
    )
