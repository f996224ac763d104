"""Answers of the models that take batches: one row an item. Splitting into batches is done elsewhere."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trimodal.client.errors import ProtocolError
from trimodal.client.transport import Array, Tensors
from trimodal.client.values import Prediction


def predictions(outputs: Tensors, count: int, model: str) -> list[list[Prediction]]:
    """The labels of `count` images, best first. Raises ProtocolError when they cannot be read."""
    try:
        pairs = zip(_rows(outputs, "labels", count), _rows(outputs, "scores", count), strict=True)
        return [
            [Prediction(bytes(label).decode(), float(score)) for label, score in zip(*pair, strict=True)]
            for pair in pairs
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(model, error) from None


def vectors(outputs: Tensors, count: int, model: str) -> list[NDArray[np.float32]]:
    """The vectors of `count` texts, float32[d] each. Raises ProtocolError when they cannot be read."""
    try:
        return list(_rows(outputs, "embedding", count))
    except (KeyError, ValueError) as error:
        raise _unreadable(model, error) from None


def _rows(outputs: Tensors, name: str, count: int) -> Array:
    array = outputs[name]
    if array.ndim != 2 or len(array) != count:
        raise ValueError(f"{name} has shape {list(array.shape)}")
    return array


def _unreadable(model: str, error: Exception) -> ProtocolError:
    return ProtocolError(f"the answer of model '{model}' cannot be read: {error}")
