"""Computes log-mel features as faster-whisper does, and keeps banks of speech and noise for windows.

A bank keeps mel power spectra (their logarithm, in half precision), because mixing, gain, tilt and DC
offset are then sums and products. Not responsible for which windows are made (windows.py).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from faster_whisper.feature_extractor import FeatureExtractor
from numpy.typing import NDArray
from speech_training.phrases import held_out as unheard
from speech_training.phrases import sentence
from speech_training.voices import (
    HELD_OUT_VARIANTS,
    RATE,
    TRAINED_VARIANTS,
    Floats,
    Utterance,
    random_voice,
    speak,
)

FRAMES_A_SECOND = 100
FLOOR = 1e-10


@cache
def _extractor() -> tuple[FeatureExtractor, Floats]:
    return FeatureExtractor(), np.hanning(401)[:-1].astype(np.float32)


def mel_power(audio: Floats) -> Floats:
    """Mel power spectrum [80, samples / 160] of 16 kHz samples, before the logarithm."""
    extractor, window = _extractor()
    spectrum = extractor.stft(audio.astype(np.float32), 400, 160, window=window, return_complex=True)
    power: Floats = extractor.mel_filters @ (np.abs(spectrum[:, :-1]) ** 2).astype(np.float32)
    return power


def normalised(power: Floats, context: int) -> Floats:
    """Whisper's log-mel features [80, context] of a power spectrum, exactly 0 after its end."""
    logs = np.log10(np.maximum(power, FLOOR))
    features = np.zeros((power.shape[0], context), np.float32)
    features[:, : power.shape[1]] = (np.maximum(logs, logs.max() - 8) + 4) / 4
    return features


def window_features(audio: Floats, context: int) -> Floats:
    """Features [80, context] of the samples of one window, as the served engine makes them."""
    frames = _extractor()[0](audio.astype(np.float32))[:, :context]
    return np.pad(frames, ((0, 0), (0, context - frames.shape[1]))).astype(np.float32)


@dataclass(frozen=True)
class Spoken:
    """An utterance in a bank: log10 of its mel power [80, frames] (float16), and words by frames."""

    logs: NDArray[np.float16]
    words: tuple[tuple[str, float, float], ...]


def banked(utterance: Utterance) -> Spoken:
    logs = np.log10(np.maximum(mel_power(utterance.audio), 1e-12)).astype(np.float16)
    words = tuple(
        (word, start * FRAMES_A_SECOND, end * FRAMES_A_SECOND) for word, start, end in utterance.words
    )
    return Spoken(logs, words)


def speech_bank(count: int, seed: int, held_out: bool = False) -> Iterator[tuple[str, Spoken]]:
    """Utterances, each with its voice's name: of trained templates by trained voices, or neither trained."""
    random_ = random.Random(seed)
    variants = HELD_OUT_VARIANTS if held_out else TRAINED_VARIANTS
    for _ in range(count):
        text = (unheard if held_out else sentence)(random_)
        utterance = speak(text, random_voice(random_, variants))
        yield utterance.voice.name, banked(utterance)


def noise(seconds: float, generator: np.random.Generator) -> Floats:
    """Noise of a random colour, sometimes with a hum, tones, clicks or a swelling level; its RMS is 1."""
    count = int(seconds * RATE)
    frequencies = np.maximum(np.fft.rfftfreq(count, 1 / RATE), 20)
    shape = frequencies ** -generator.uniform(0, 1.2)
    audio = np.fft.irfft(np.fft.rfft(generator.standard_normal(count)) * shape, count)
    audio /= audio.std()
    times = np.arange(count) / RATE
    kind = generator.integers(0, 6)
    if kind == 0:  # a mains hum and what belongs to it
        base = generator.uniform(45, 130)
        audio += sum(np.sin(2 * np.pi * base * k * times) / k for k in range(1, 6))
    elif kind == 1:  # notes, one after the other
        note = int(generator.uniform(0.1, 1.5) * RATE)
        pitches = generator.uniform(100, 2500, count // note + 1).repeat(note)[:count]
        audio = 0.1 * audio + np.sin(2 * np.pi * np.cumsum(pitches) / RATE)
    elif kind == 2:  # clicks
        audio[generator.integers(0, count, count // RATE * 2)] += 20
    elif kind == 3:
        audio *= 1 + 0.8 * np.sin(2 * np.pi * generator.uniform(0.1, 3) * times)
    levelled: Floats = (audio / audio.std()).astype(np.float32)
    return levelled


def noise_bank(count: int, generator: np.random.Generator, seconds: float = 31) -> list[Floats]:
    """Mel power spectra [80, frames] of noises of RMS 1."""
    return [mel_power(noise(seconds, generator)) for _ in range(count)]


@cache
def dc_power() -> Floats:
    """Mel power [80, 1] of a constant 1: what a DC offset adds, times its square."""
    return mel_power(np.ones(RATE, np.float32))[:, 40:41]
