"""Turns an update of a stream into the speech model's output tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimodal.audio.values import Word
from trimodal.speech.session.session import Update


def columns(update: Update, *, final: bool) -> dict[str, NDArray[Any]]:
    """Tensor name → array [1, n]; the names and types of model_repository/speech/config.pbtxt."""
    words = update.committed
    rows: dict[str, tuple[list[Any], type]] = {
        "committed": ([_joined(words)], np.object_),
        "tentative": ([_joined(update.tentative)], np.object_),
        "words": ([word.text.encode() for word in words], np.object_),
        "word_starts": ([word.start for word in words], np.float64),
        "word_ends": ([word.end for word in words], np.float64),
        "word_probabilities": ([word.probability for word in words], np.float32),
        "received_s": ([update.received_s], np.float64),
        "lag_s": ([update.lag_s], np.float64),
        "final": ([final], np.bool_),
    }
    return {name: np.array([row], kind) for name, (row, kind) in rows.items()}


def _joined(words: Iterable[Word]) -> bytes:
    return "".join(word.text for word in words).encode()
