"""Reads the audio that the speech builds are checked on: a folder of files, with texts if it has them.

Whole files become windows no longer than the longest context.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from trimodal.audio.files import AudioError, read_blocks
from trimodal.audio.values import Samples
from trimodal.errors import ArtefactError
from trimodal.paths import data_directory

SAMPLES = data_directory() / "samples" / "speech"
SUFFIXES = (".wav", ".flac", ".ogg")
TEXTS = "samples.json"
MOST_WINDOWS = 64


@dataclass(frozen=True)
class Recording:
    """One file: its windows in order and, where known, what is said in it."""

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
    recordings, room = [], MOST_WINDOWS
    for path in files:
        if not room:
            break
        try:
            windows = tuple(islice(read_blocks(path, longest_s), room + 1))
        except AudioError as error:
            raise ArtefactError(str(error)) from None
        # Of a longer one its beginning, whose text nobody knows.
        text = texts.get(path.name) if len(windows) <= room else None
        recordings.append(Recording(windows[:room], text))
        room -= len(windows[:room])
    if not recordings:
        raise ArtefactError(f"{directory} holds no audio ({', '.join(SUFFIXES)}) to check on")
    return recordings


def _texts(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    try:
        return {str(sample["file"]): str(sample["text"]) for sample in json.loads(path.read_bytes())}
    except (ValueError, TypeError, KeyError):
        raise ArtefactError(f'{path} is not a list of {{"file": …, "text": …}}') from None
