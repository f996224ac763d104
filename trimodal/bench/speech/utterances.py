"""Joins recorded utterances to streams whose every word is known."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trimodal.audio.values import SAMPLE_RATE, Samples, Word
from trimodal.errors import OperatorError
from trimodal.speech.values import MAX_WINDOW_S

PAUSE_S = (0.2, 1.2)


@dataclass(frozen=True)
class Utterance:
    """One recording: float32 samples at 16 kHz, what was said, and its words with their times."""

    samples: Samples
    text: str
    words: tuple[Word, ...]


@dataclass(frozen=True)
class Spoken:
    """A stream's audio and the truth about it.

    Attributes:
        samples: float32[n], 16 kHz mono.
        words: all that is said, seconds from the stream's begin.
        windows: (from, to) in samples: one utterance each, with half of the pauses around it.
    """

    samples: Samples
    text: str
    words: tuple[Word, ...]
    windows: tuple[tuple[int, int], ...]

    @property
    def seconds(self) -> float:
        return len(self.samples) / SAMPLE_RATE


def read_utterances(directory: Path) -> list[Utterance]:
    """Reads the recordings that samples.json in `directory` lists: file, text, words as [word, start, end].

    Raises:
        OperatorError: names the file that is missing or cannot be read.
    """
    import soundfile

    listing = directory / "samples.json"
    try:
        found = []
        for entry in json.loads(listing.read_text()):
            samples, rate = soundfile.read(directory / entry["file"], dtype="float32")
            if rate != SAMPLE_RATE or samples.ndim != 1 or len(samples) > MAX_WINDOW_S * SAMPLE_RATE:
                raise ValueError(f"{entry['file']} is not 16 kHz mono of at most {MAX_WINDOW_S:g} s")
            words = tuple(Word(f" {word}", start, end, 1.0) for word, start, end in entry["words"])
            found.append(Utterance(samples, entry["text"], words))
    except (OSError, KeyError, TypeError, ValueError, soundfile.LibsndfileError) as error:
        raise OperatorError(f"--samples {listing}: {type(error).__name__}: {error}") from None
    if not found:
        raise OperatorError(f"--samples {listing}: it lists no recording")
    return found


def speak(utterances: Sequence[Utterance], seconds: float, seed: int) -> Spoken:
    """Utterances in random order with pauses around them: at most `seconds`, but one utterance at least.

    The same arguments give the same stream.
    """
    rng = random.Random(seed)
    parts: list[Samples] = []
    words: list[Word] = []
    texts: list[str] = []
    spans: list[tuple[int, int]] = []  # of the utterances alone

    def pause() -> Samples:
        return np.zeros(round(rng.uniform(*PAUSE_S) * SAMPLE_RATE), np.float32)

    at = len(gap := pause())
    parts.append(gap)
    for one in _shuffled(utterances, rng):
        gap = pause()
        if spans and at + len(one.samples) + len(gap) > seconds * SAMPLE_RATE:
            break
        words += [word.shifted(at / SAMPLE_RATE) for word in one.words]
        texts.append(one.text)
        spans.append((at, at + len(one.samples)))
        parts += [one.samples, gap]
        at = spans[-1][1] + len(gap)
    inner = [(end + begin) // 2 for (_, end), (begin, _) in itertools.pairwise(spans)]
    borders = [0, *inner, at]
    return Spoken(np.concatenate(parts), " ".join(texts), tuple(words), tuple(itertools.pairwise(borders)))


def _shuffled(utterances: Sequence[Utterance], rng: random.Random) -> Iterator[Utterance]:
    """Endless; none comes again before all others were there."""
    while True:
        yield from rng.sample(utterances, len(utterances))
