"""Has windows recognised by another model of the same Triton: one blocking call a window.

Calls come from many threads at once; Triton's dynamic batcher gathers the windows that wait.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from trimodal.audio.values import Word
from trimodal.errors import RequestError
from trimodal.speech.values import FIGURES, MAX_PROMPT, TASKS, Recognition, Window
from trimodal.triton.calls import infer

WORDS = ("words", "word_starts", "word_ends", "word_probabilities", "word_tokens")
OUTPUTS = (*WORDS, "language", *FIGURES, "language_probabilities", "doubted", "rejected")
# What a client chose; the rest of a window is ours.
CLIENTS_FIELDS = ("prompt", "language")


def recognise(pb_utils: Any, model: str, window: Window) -> Recognition:
    """What `model` hears in `window`. Raises RequestError of the kind that it answered with; names it."""
    # Always the same six inputs: Triton only batches requests that have the same set.
    inputs = {
        "window": window.samples[None],
        "prompt": np.array([[window.prompt[-MAX_PROMPT:].encode()]], dtype=object),
        "language": np.array([[window.language.encode()]], dtype=object),
        "task": np.array([[TASKS[window.translate].encode()]], dtype=object),
        "temperatures": np.array([[",".join(map(str, window.temperatures)).encode()]], dtype=object),
        "prefix": np.array([[window.prefix.encode()]], dtype=object),
    }
    try:
        out = infer(pb_utils, model, inputs, OUTPUTS, CLIENTS_FIELDS)
    except RequestError as error:
        raise type(error)(f"{model}: {error}") from None
    words = (
        Word(text.decode(), float(start), float(end), float(probability), tuple(map(int, tokens.split())))
        for text, start, end, probability, tokens in zip(*(out[name] for name in WORDS), strict=True)
    )
    return Recognition(
        tuple(words),
        language=out["language"][0].decode(),
        **{name: float(out[name][0]) for name in FIGURES},
        language_probabilities=tuple(json.loads(out["language_probabilities"][0]).items()),
        doubted=out["doubted"][0].decode(),
        rejected=out["rejected"][0].decode(),
    )
