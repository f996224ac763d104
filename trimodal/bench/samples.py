"""Makes what is sent: pieces of photos, and recorded utterances joined to streams whose text is known."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from trimodal.audio.files import AudioError, read_blocks
from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.errors import OperatorError
from trimodal.paths import data_directory
from trimodal.speech.values import MAX_WINDOW_S

PHOTOS = data_directory() / "samples" / "photos"
PICTURES = 32  # different ones: no cache of the processor holds all their pixels
STREAMS = 16  # different ones
PAUSE_S = (0.2, 1.2)
Item = TypeVar("Item")


def batch_of(items: Sequence[Item], number: int, size: int) -> list[Item]:
    """Returns the items of request `number`: each request other ones, in a ring."""
    return [items[(number * size + index) % len(items)] for index in range(size)]


def jpegs(width: int, height: int, count: int = PICTURES, directory: Path = PHOTOS) -> list[bytes]:
    """Different JPEG files of this size: pieces of the photos in `directory`.

    Raises:
        OperatorError: it holds no photo, or Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError:
        raise OperatorError("pictures need the package Pillow: pip install pillow") from None

    photos = [Image.open(file).convert("RGB") for file in sorted(directory.glob("*.jpg"))]
    if not photos:
        raise OperatorError(f"{directory} holds no photo (*.jpg)")
    rng = random.Random(0)
    files = []
    for number in range(count):
        photo = photos[number % len(photos)]
        share = rng.uniform(0.6, 1.0) * min(photo.width / width, photo.height / height)
        across, down = width * share, height * share
        left, top = rng.uniform(0, photo.width - across), rng.uniform(0, photo.height - down)
        piece = photo.resize((width, height), box=(left, top, left + across, top + down))
        file = io.BytesIO()
        piece.save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


@dataclass(frozen=True)
class Recording:
    """Speech: float32 samples at 16 kHz, and what is said in it."""

    samples: Samples
    text: str


def read_utterances(directory: Path) -> list[Recording]:
    """Reads the recordings that samples.json in `directory` lists: file and text.

    Raises:
        OperatorError: names the file that is missing, cannot be read or is too long for one window.
    """
    listing = directory / "samples.json"
    try:
        found = []
        for entry in json.loads(listing.read_bytes()):
            samples, *more = read_blocks(directory / entry["file"], MAX_WINDOW_S)
            if more:
                raise ValueError(f"{entry['file']} is longer than {MAX_WINDOW_S:g} s")
            found.append(Recording(samples, entry["text"]))
    except (OSError, KeyError, TypeError, ValueError, AudioError) as error:
        raise OperatorError(f"--samples {listing}: {type(error).__name__}: {error}") from None
    if not found:
        raise OperatorError(f"--samples {listing}: it lists no recording")
    return found


def speak(utterances: Sequence[Recording], seconds: float, seed: int) -> Recording:
    """Utterances in random order with pauses around them: at most `seconds`, but one utterance at least.

    The same arguments give the same stream.
    """
    rng = random.Random(seed)
    texts: list[str] = []

    def pause() -> Samples:
        return np.zeros(round(rng.uniform(*PAUSE_S) * SAMPLE_RATE), np.float32)

    parts = [pause()]
    at = len(parts[0])
    for one in _shuffled(utterances, rng):
        gap = pause()
        if texts and at + len(one.samples) + len(gap) > seconds * SAMPLE_RATE:
            break
        texts.append(one.text)
        parts += [one.samples, gap]
        at += len(one.samples) + len(gap)
    return Recording(np.concatenate(parts), " ".join(texts))


def spoken_streams(directory: Path, seconds: float) -> list[Recording]:
    """Different streams of a directory's recordings, each at most `seconds` long. Raises: OperatorError."""
    utterances = read_utterances(directory)
    return [speak(utterances, seconds, seed) for seed in range(STREAMS)]


def _shuffled(utterances: Sequence[Recording], rng: random.Random) -> Iterator[Recording]:
    """Endless; none comes again before all others were there."""
    while True:
        yield from rng.sample(utterances, len(utterances))
