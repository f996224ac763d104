"""Has windows recognised by another model of the same Triton, in blocking calls.

Calls come from many threads at once; Triton's dynamic batcher gathers the windows that wait.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimodal.audio.values import Word
from trimodal.errors import RequestError
from trimodal.speech.values import FIGURES, TASKS, Recognition, Window
from trimodal.triton.calls import infer

WORDS = ("words", "word_starts", "word_ends", "word_probabilities", "word_tokens")
OUTPUTS = (*WORDS, "word_count", "language", *FIGURES, "language_probabilities", "doubted", "rejected")
# What a client chose; the rest of a window is ours.
CLIENTS_FIELDS = ("prompt", "language")


def recognise(pb_utils: Any, model: str, windows: Sequence[Window]) -> list[Recognition]:
    """What `model` hears in windows, in one call.

    Raises RequestError of the kind that it answered with; names it.
    """

    def texts(values: Iterable[str]) -> NDArray[np.object_]:
        return np.array([[value.encode()] for value in values], dtype=object)

    lengths = [len(one.samples) for one in windows]
    rows = [np.pad(one.samples, (0, max(lengths) - len(one.samples))) for one in windows]
    # Always the same eight inputs: Triton only batches requests that have the same set.
    inputs = {
        "window": np.stack(rows),
        "samples": np.array(lengths, np.int32)[:, None],
        "prompt": texts(one.prompt for one in windows),
        "language": texts(one.language for one in windows),
        "task": texts(TASKS[one.translate] for one in windows),
        "temperatures": texts(",".join(map(str, one.temperatures)) for one in windows),
        "prefix": texts(one.prefix for one in windows),
        "draft": texts(one.draft for one in windows),
    }
    try:
        out = infer(pb_utils, model, inputs, OUTPUTS, CLIENTS_FIELDS)
    except RequestError as error:
        raise type(error)(f"{model}: {error}") from None
    columns = {name: values.reshape(len(windows), -1) for name, values in out.items()}
    return [_recognition({name: rows[n] for name, rows in columns.items()}) for n in range(len(windows))]


def _recognition(row: Mapping[str, NDArray[Any]]) -> Recognition:
    words = (
        Word(text.decode(), float(start), float(end), float(probability), tuple(map(int, tokens.split())))
        for text, start, end, probability, tokens in islice(
            zip(*(row[name] for name in WORDS), strict=True), int(row["word_count"][0])
        )
    )
    return Recognition(
        tuple(words),
        language=row["language"][0].decode(),
        **{name: float(row[name][0]) for name in FIGURES},
        language_probabilities=tuple(json.loads(row["language_probabilities"][0]).items()),
        doubted=row["doubted"][0].decode(),
        rejected=row["rejected"][0].decode(),
    )
