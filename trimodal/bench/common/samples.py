"""Makes what is sent: pictures, and recorded utterances joined to streams whose every word is known."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from trimodal.audio.values import SAMPLE_RATE, Samples, Word
from trimodal.errors import OperatorError
from trimodal.speech.values import MAX_WINDOW_S

PICTURES = 32  # different ones: no cache of the processor holds all their pixels
STREAMS = 16  # different ones
PAUSE_S = (0.2, 1.2)
Item = TypeVar("Item")


def batch_of(items: Sequence[Item], number: int, size: int) -> list[Item]:
    """Returns the items of request `number`: each request other ones, in a ring."""
    return [items[(number * size + index) % len(items)] for index in range(size)]


def jpegs(width: int, height: int, count: int = PICTURES) -> list[bytes]:
    """JPEG files of random smooth shapes with some grain: about as many bytes as photographs of that size."""
    from PIL import Image

    rng = np.random.default_rng(0)
    files = []
    for _ in range(count):
        coarse = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        shapes = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        grain = rng.normal(0, 8, (height, width, 1))
        pixels = np.clip(np.asarray(shapes) + grain, 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


@dataclass(frozen=True)
class Recording:
    """Speech: float32 samples at 16 kHz, what is said in it, and its words with their times."""

    samples: Samples
    text: str
    words: tuple[Word, ...]


def read_utterances(directory: Path) -> list[Recording]:
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
            found.append(Recording(samples, entry["text"], words))
    except (OSError, KeyError, TypeError, ValueError, soundfile.LibsndfileError) as error:
        raise OperatorError(f"--samples {listing}: {type(error).__name__}: {error}") from None
    if not found:
        raise OperatorError(f"--samples {listing}: it lists no recording")
    return found


def speak(utterances: Sequence[Recording], seconds: float, seed: int) -> Recording:
    """Utterances in random order with pauses around them: at most `seconds`, but one utterance at least.

    The same arguments give the same stream.
    """
    rng = random.Random(seed)
    words: list[Word] = []
    texts: list[str] = []

    def pause() -> Samples:
        return np.zeros(round(rng.uniform(*PAUSE_S) * SAMPLE_RATE), np.float32)

    parts = [pause()]
    at = len(parts[0])
    for one in _shuffled(utterances, rng):
        gap = pause()
        if texts and at + len(one.samples) + len(gap) > seconds * SAMPLE_RATE:
            break
        words += [word.shifted(at / SAMPLE_RATE) for word in one.words]
        texts.append(one.text)
        parts += [one.samples, gap]
        at += len(one.samples) + len(gap)
    return Recording(np.concatenate(parts), " ".join(texts), tuple(words))


def spoken_streams(directory: Path, seconds: float) -> list[Recording]:
    """Different streams of a directory's recordings, each at most `seconds` long. Raises: OperatorError."""
    utterances = read_utterances(directory)
    return [speak(utterances, seconds, seed) for seed in range(STREAMS)]


def _shuffled(utterances: Sequence[Recording], rng: random.Random) -> Iterator[Recording]:
    """Endless; none comes again before all others were there."""
    while True:
        yield from rng.sample(utterances, len(utterances))
