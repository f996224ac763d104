"""Asks the models of the semantic layer through Triton: one embeds questions, one judges pairs.

Each is asked as one checkpoint and no other: of another one the vectors are not comparable with those that
are stored, and the threshold is not its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimodal.cache.values import Vector
from trimodal.errors import InternalError, RequestError
from trimodal.triton.calls import infer
from trimodal.triton.parameters import CHECKPOINT


def embed(pb_utils: Any, model: str, checkpoint: str, text: str) -> Vector:
    """The vector float32[d] of `text`, of unit length.

    Raises:
        RequestError: with the model's own code; InternalError when what it sent is no direction.
    """
    inputs = {"text_input": np.array([[text.encode()]], dtype=object)}
    vector = _ask(pb_utils, model, checkpoint, inputs, "embedding")
    length = float(np.linalg.norm(vector))
    if not (np.isfinite(length) and length > 0):
        raise InternalError(f"{model}: the embedding has no direction")
    # A copy: what Triton handed over lies in memory that it takes back.
    return (vector / length).astype(np.float32)


def judge(pb_utils: Any, model: str, checkpoint: str, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """P(same) of each pair, whichever is named first, all asked in one batch.

    Raises:
        RequestError: with the model's own code; InternalError when what it sent are no probabilities.
    """
    read = [in_order(one, other) for one, other in pairs]
    question, other = (np.array([[pair[side].encode()] for pair in read], object) for side in (0, 1))
    same = _ask(pb_utils, model, checkpoint, {"question": question, "other": other}, "same")
    if len(same) != len(read) or not ((same >= 0) & (same <= 1)).all():
        raise InternalError(f"{model}: {len(same)} numbers for {len(read)} pairs, not all 0 to 1")
    return [float(one) for one in same]


def in_order(one: str, other: str) -> tuple[str, str]:
    """The pair as the judge reads it, whichever of the two is stored: the shorter question first.

    Reading both ways and taking the lower one takes twice the time and tells no more (docs/benchmarks.md).
    """
    first, second = sorted((one, other), key=lambda text: (len(text), text))
    return first, second


def _ask(
    pb_utils: Any, model: str, checkpoint: str, inputs: Mapping[str, NDArray[Any]], output: str
) -> NDArray[np.float32]:
    """One output, flat. Raises: RequestError, which names the model."""
    try:
        parameters = {CHECKPOINT: checkpoint}
        found = infer(pb_utils, model, inputs, (output,), fields=tuple(inputs), parameters=parameters)
    except RequestError as error:
        raise type(error)(f"{model}: {error}") from None
    return np.asarray(found[output], np.float32)
