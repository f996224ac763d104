"""Reads how an answer came about from the tensors of its last response."""

from __future__ import annotations

import json
import math

from trimodal.client.transport import Tensors
from trimodal.client.values import Note


def read_note(outputs: Tensors) -> Note:
    """The note in `outputs`; an empty one from a server that sends none.

    Raises:
        KeyError, IndexError, TypeError, ValueError: part of it is missing or cannot be read.
    """
    if "cache" not in outputs:
        return Note()
    foreseen = float(outputs["predicted_ttft_ms"][0])
    trimmed = bytes(outputs["trimmed"][0]).decode()
    return Note(
        cache=bytes(outputs["cache"][0]).decode(),
        similarity=float(outputs["similarity"][0]),
        trimmed={str(name): int(count) for name, count in json.loads(trimmed).items()} if trimmed else {},
        queue_ms=float(outputs["queue_ms"][0]),
        predicted_ttft_ms=foreseen if foreseen >= 0 else math.nan,
    )
