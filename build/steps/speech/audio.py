"""Reads the audio that the speech builds are checked on: a folder of files, with texts if it has them.

Whole files become windows no longer than the longest context.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.errors import ArtefactError

DEMO_SAMPLES = Path(__file__).parents[2] / "demo" / "speech" / "samples"
SUFFIXES = (".wav", ".flac", ".ogg")
TEXTS = "samples.json"
MOST_WINDOWS = 64


@dataclass(frozen=True)
class Recording:
    """One file: its windows in order and, where known, what is said in it."""

    name: str
    windows: tuple[Samples, ...]
    text: str | None


def read_recordings(directory: Path, longest_s: float) -> list[Recording]:
    """The recordings in `directory`, cut into windows of at most `longest_s`, 64 windows in all.

    `samples.json`, where there is one, is a list of {"file": …, "text": …}.

    Raises:
        ArtefactError: no directory, no usable file, or a file that cannot be read.
    """
    if not directory.is_dir():
        raise ArtefactError(f"no folder {directory} with audio to check on: name one with --audio")
    files = sorted(path for path in directory.iterdir() if path.suffix.lower() in SUFFIXES)
    texts = _texts(directory / TEXTS)
    recordings, room, length = [], MOST_WINDOWS, round(longest_s * SAMPLE_RATE)
    for path in files:
        samples = _read(path)
        windows = [samples[start : start + length] for start in range(0, len(samples), length)]
        if not windows or len(windows) > room:
            continue
        room -= len(windows)
        recordings.append(Recording(path.name, tuple(windows), texts.get(path.name)))
    if not recordings:
        raise ArtefactError(f"{directory} holds no audio ({', '.join(SUFFIXES)}) to check on")
    return recordings


def _read(path: Path) -> Samples:
    """float32[n] at 16 kHz: channels are averaged, other rates resampled."""
    import soundfile
    import soxr

    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.LibsndfileError, OSError) as error:
        raise ArtefactError(f"{path} cannot be read as audio ({error})") from None
    mono = samples.mean(axis=1)
    return np.asarray(mono if rate == SAMPLE_RATE else soxr.resample(mono, rate, SAMPLE_RATE), np.float32)


def _texts(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    try:
        return {str(sample["file"]): str(sample["text"]) for sample in json.loads(path.read_text())}
    except (ValueError, TypeError, KeyError):
        raise ArtefactError(f'{path} is not a list of {{"file": …, "text": …}}') from None
