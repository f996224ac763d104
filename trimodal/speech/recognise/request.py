"""Checks one request to the recogniser, and turns its results into output tensors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimodal.audio.languages import language_code
from trimodal.audio.samples import check_samples
from trimodal.audio.values import SAMPLE_RATE
from trimodal.errors import InvalidArgument
from trimodal.settings import shorten
from trimodal.speech.values import (
    FIGURES,
    MAX_PROMPT,
    MAX_TEMPERATURES,
    MAX_WINDOW_S,
    TASKS,
    Recognition,
    Window,
)
from trimodal.triton.fields import decode


@dataclass(frozen=True, slots=True)
class RecogniseRequest:
    """One request, as its tensors are.

    Attributes:
        windows: float32[rows, samples].
        prompts, languages, tasks: UTF-8, one a row; None for all empty. A task is one of TASKS.
        prefixes, drafts: UTF-8, as `prompts`.
        lengths: samples of each row that are its window; zeros follow. None: all are.
        temperatures: numbers parted by commas, 0 to 1, one text a row; empty for the model's own.
    """

    windows: NDArray[np.float32]
    prompts: Sequence[bytes] | None = None
    languages: Sequence[bytes] | None = None
    tasks: Sequence[bytes] | None = None
    temperatures: Sequence[bytes] | None = None
    prefixes: Sequence[bytes] | None = None
    drafts: Sequence[bytes] | None = None
    lengths: Sequence[int] | None = None

    def checked(self, languages: Sequence[str]) -> list[Window]:
        """The request's windows, of at most MAX_WINDOW_S; language "" where none is named.

        Raises InvalidArgument: the first thing that is wrong, with its row if there are several.
        """
        rows = len(self.windows)
        if self.windows.ndim != 2 or not rows:
            raise InvalidArgument(f"window: shape [rows, samples] is needed, got {list(self.windows.shape)}")
        samples, longest = self.windows.shape[1], round(MAX_WINDOW_S * SAMPLE_RATE)
        if not 0 < samples <= longest:
            raise InvalidArgument(
                f"window: {samples} samples; 1 to {longest} are accepted "
                f"({longest / SAMPLE_RATE:g} s at {SAMPLE_RATE} Hz)"
            )
        prompts = _column(self.prompts, "prompt", rows)
        codes = _column(self.languages, "language", rows)
        tasks = _column(self.tasks, "task", rows)
        temperatures = _column(self.temperatures, "temperatures", rows)
        prefixes = _column(self.prefixes, "prefix", rows)
        drafts = _column(self.drafts, "draft", rows)
        lengths = _lengths(self.lengths, rows, samples)
        windows = []
        for index in range(rows):
            place = "" if rows == 1 else f"[{index}]"
            check_samples(self.windows[index], f"window{place}")
            prompt = _text(f"prompt{place}", prompts[index])
            prefix = _text(f"prefix{place}", prefixes[index])
            draft = _text(f"draft{place}", drafts[index])
            code = language_code(decode(f"language{place}", codes[index]))
            if code and code not in languages:
                known = ", ".join(languages)
                raise InvalidArgument(f"language{place}: {code[:16]!r} is not known (known: {known})")
            task = decode(f"task{place}", tasks[index])
            if task and task not in TASKS:
                raise InvalidArgument(f"task{place}: {task[:16]!r} is not known (known: {', '.join(TASKS)})")
            ladder = _temperatures(f"temperatures{place}", temperatures[index])
            own = self.windows[index, : lengths[index]]
            windows.append(Window(own, code, prompt, task == "translate", ladder, prefix, draft))
        return windows


@dataclass(frozen=True, slots=True)
class Recognised:
    """What was heard in the rows of one request, and how many windows each one's run held."""

    rows: tuple[Recognition, ...]
    batch_sizes: tuple[int, ...]

    def tensors(self) -> dict[str, NDArray[np.generic]]:
        """Output name → values, a row first; rows with fewer words end in "" and 0."""
        width = max(len(row.words) for row in self.rows)
        words = np.full((len(self.rows), width), b"", object)
        tokens = words.copy()
        times = np.zeros((3, len(self.rows), width), np.float32)
        for index, row in enumerate(self.rows):
            for at, word in enumerate(row.words):
                words[index, at] = word.text.encode()
                times[:, index, at] = word.start, word.end, word.probability
                tokens[index, at] = " ".join(map(str, word.tokens)).encode()
        starts, ends, probabilities = times

        def texts(name: str) -> NDArray[np.generic]:
            return np.array([[getattr(row, name).encode()] for row in self.rows], object)

        return {
            "text": texts("text"),
            "words": words,
            "word_starts": starts,
            "word_ends": ends,
            "word_probabilities": probabilities,
            "word_tokens": tokens,
            "word_count": np.array([[len(row.words)] for row in self.rows], np.int32),
            "language": texts("language"),
            **{name: np.array([[getattr(row, name)] for row in self.rows], np.float32) for name in FIGURES},
            "language_probabilities": np.array(
                [[json.dumps(dict(row.language_probabilities)).encode()] for row in self.rows], object
            ),
            "doubted": texts("doubted"),
            "rejected": texts("rejected"),
            "batch_size": np.array([[size] for size in self.batch_sizes], np.int32),
        }


def _text(field: str, raw: bytes) -> str:
    text = decode(field, raw)
    if len(text) > MAX_PROMPT:
        raise InvalidArgument(f"{field}: {len(text)} characters; at most {MAX_PROMPT} are accepted")
    return text


def _temperatures(field: str, raw: bytes) -> tuple[float, ...]:
    text = decode(field, raw)
    try:
        temperatures = tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        temperatures = (-1.0,)
    if len(temperatures) > MAX_TEMPERATURES or not all(0 <= one <= 1 for one in temperatures):
        raise InvalidArgument(
            f"{field}: {text[:32]!r}; at most {MAX_TEMPERATURES} numbers from 0 to 1 are taken, as 0,0.2,0.4"
        )
    return temperatures


def _lengths(given: Sequence[int] | None, rows: int, most: int) -> Sequence[int]:
    if given is None:
        return [most] * rows
    if len(given) != rows or not all(0 < length <= most for length in given):
        told = shorten(str(list(given)))
        raise InvalidArgument(
            f"samples: {told}; one number for each of {rows} windows is needed, 1 to {most}"
        )
    return given


def _column(values: Sequence[bytes] | None, name: str, rows: int) -> Sequence[bytes]:
    if values is None:
        return [b""] * rows
    if len(values) != rows:
        raise InvalidArgument(f"{name}: one for each of {rows} windows is needed, got {len(values)}")
    return values
