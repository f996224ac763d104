"""Reads words out of tones that `speak` wrote: a recogniser without a model, for tests and load tests.

A word is a tone of `WORD_S` whose frequency says which of `VOCABULARY` it is; silence separates words. A
word is heard if more than half of it lies in the window, with the times of the part that does. It makes no
mistakes, so words that a session loses or doubles at window borders show.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from trimodal.audio.values import SAMPLE_RATE, Samples, Word
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import MAX_WINDOW_S, Recognition, Window
from trimodal.speech.whisper.word_timestamps import compression_ratio

VOCABULARY = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "what", "is"),
    *("a", "the", "lambda", "list", "string", "class", "while", "for", "function", "statement", "explain"),
    *("how", "does", "loop", "return", "value", "please", "hello", "world"),
)
WORD_S = 0.25
# Word 0 sounds at 200 Hz, each other 100 Hz above the one before it.
FIRST_HZ, STEP_HZ = 200, 100
LOUDNESS, QUIET = 0.3, 0.02
# Silence that parts two words; a tone itself is below QUIET for a tenth of a millisecond at a time.
PARTING_S = 0.005


def speak(
    words: Iterable[str | float], gap_s: float = 0.15, lead_s: float = 0.3
) -> tuple[Samples, list[Word]]:
    """Samples that say words of `VOCABULARY`, and the words with their times; a number is a pause in seconds.

    `gap_s` is the silence after each word, `lead_s` that before the first. Raises ValueError: a word that is
    not in the vocabulary, or no gap between words.
    """
    if gap_s <= 2 * PARTING_S:
        raise ValueError(f"a gap of {gap_s} s does not part two words")
    pieces = [_silence(lead_s)]
    said: list[Word] = []
    at = len(pieces[0])
    for word in words:
        if isinstance(word, str):
            tone = _tone(VOCABULARY.index(word))
            said.append(Word(" " + word, at / SAMPLE_RATE, (at + len(tone)) / SAMPLE_RATE, 1.0))
            pieces += [tone, _silence(gap_s)]
            at += len(tone) + len(pieces[-1])
        else:
            pieces.append(_silence(word))
            at += len(pieces[-1])
    return np.concatenate(pieces), said


def _silence(seconds: float) -> Samples:
    return np.zeros(round(seconds * SAMPLE_RATE), np.float32)


def _tone(index: int) -> Samples:
    times = np.arange(round(WORD_S * SAMPLE_RATE)) / SAMPLE_RATE
    return np.asarray(LOUDNESS * np.sin(2 * np.pi * (FIRST_HZ + STEP_HZ * index) * times), np.float32)


def hear(samples: Samples) -> tuple[Word, ...]:
    """The words in samples that `speak` made, or in any stretch of them; times to a millisecond."""
    loud = np.flatnonzero(np.abs(samples) >= QUIET)
    words = []
    for run in np.split(loud, np.flatnonzero(np.diff(loud) > PARTING_S * SAMPLE_RATE) + 1):
        start, end = (int(run[0]), int(run[-1]) + 1) if len(run) else (0, 0)
        # Longer than a word is noise: its spectrum is not worth the time.
        if WORD_S / 2 < (end - start) / SAMPLE_RATE < 2 * WORD_S:
            word = _word(samples[start:end])
            if word:
                words.append(Word(" " + word, start / SAMPLE_RATE, end / SAMPLE_RATE, 1.0))
    return tuple(words)


def _word(tone: Samples) -> str:
    """The word whose frequency carries most of the energy; "" if none does."""
    energy = np.abs(np.fft.rfft(tone * np.hanning(len(tone)))) ** 2
    peak = int(energy.argmax())
    if energy[max(0, peak - 3) : peak + 4].sum() < 0.5 * energy.sum():
        return ""
    index = (peak * SAMPLE_RATE / len(tone) - FIRST_HZ) / STEP_HZ
    known = 0 <= round(index) < len(VOCABULARY) and abs(index - round(index)) < 0.2
    return VOCABULARY[round(index)] if known else ""


class FakeWhisper:
    """Hears what `speak` said; a run takes `batch_s` and `window_s` more for each window."""

    contexts_s = (MAX_WINDOW_S,)
    languages = ("en",)

    def __init__(self, batch_s: float = 0.0, window_s: float = 0.0) -> None:
        self._batch_s, self._window_s = batch_s, window_s

    def recognise(self, windows: Sequence[Window], temperature: float = 0.0) -> list[Recognition]:
        """The words of each window, in order; the temperature changes nothing."""
        heard = [
            Recognition(
                words=words,
                no_speech_probability=0.01 if words else 0.99,
                average_log_probability=-0.01 if words else -2.0,
                compression_ratio=compression_ratio("".join(word.text for word in words)),
            )
            for words in (hear(window.samples) for window in windows)
        ]
        time.sleep(self._batch_s + self._window_s * len(windows))
        return heard

    def close(self) -> None:
        """Holds nothing."""


def open_engine(directory: Path, settings: RecogniseSettings) -> FakeWhisper:
    """A fake with the costs of `settings`; needs no artefact."""
    return FakeWhisper(settings.fake_batch_ms / 1000, settings.fake_window_ms / 1000)
