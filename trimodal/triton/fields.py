"""Reads one field of a request from its tensor: type, size and limits, each refusal naming them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from trimodal.errors import InvalidArgument

Inputs = Mapping[str, np.ndarray[Any, Any]]
_MAX_QUOTED = 60


def scalar(inputs: Inputs, name: str) -> Any:
    """The one value of a field; None: not given."""
    array = inputs.get(name)
    if array is None:
        return None
    if array.size != 1:
        raise InvalidArgument(f"{name} holds {array.size} values: exactly 1 is needed")
    return array.reshape(-1)[0]


def decode(name: str, raw: Any) -> str:
    """A field's bytes as text."""
    if isinstance(raw, str):
        return raw
    try:
        return bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{name} is not valid UTF-8: byte {error.start} cannot be decoded") from None


def text(inputs: Inputs, name: str, most_bytes: int) -> str | None:
    """A text of at most `most_bytes`; None: not given."""
    raw = scalar(inputs, name)
    if raw is None:
        return None
    if len(raw) > most_bytes:
        raise InvalidArgument(f"{name} has {len(raw)} bytes: at most {most_bytes} are taken")
    return decode(name, raw)


def words(name: str, data: bytes, most_bytes: int) -> str:
    """A text of at most `most_bytes` that has more than blanks. Raises: InvalidArgument."""
    if len(data) > most_bytes:
        raise InvalidArgument(f"{name}: {len(data)} bytes; at most {most_bytes} are accepted")
    given = decode(name, data)
    if not given.strip():
        raise InvalidArgument(f"{name}: empty; at least one word is needed")
    return given


def boolean(inputs: Inputs, name: str) -> bool | None:
    """True or false; None: not given."""
    raw = scalar(inputs, name)
    return None if raw is None else bool(raw)


def integer(inputs: Inputs, name: str, default: Any, low: int, high: int) -> Any:
    """A whole number from `low` to `high`; `default`: not given."""
    raw = scalar(inputs, name)
    if raw is None:
        return default
    value = int(raw)
    if not low <= value <= high:
        raise InvalidArgument(f"{name} is {value}: it must be between {low} and {high}")
    return value


def integers(inputs: Inputs, name: str, low: int, high: int, most: int) -> tuple[int, ...]:
    """Whole numbers from `low` to `high`, `most` at most; none: not given."""
    array = inputs.get(name)
    if array is None:
        return ()
    if array.size > most:
        raise InvalidArgument(f"{name} holds {array.size} values: at most {most} are taken")
    values = [int(one) for one in array.reshape(-1)]
    for value in values:
        if not low <= value <= high:
            raise InvalidArgument(f"{name} has {value}: it must be between {low} and {high}")
    return tuple(values)


def number(
    inputs: Inputs, name: str, default: float, low: float, high: float, *, above: bool = False
) -> float:
    """A finite number from `low` (with `above`: above it) to `high`; `default`: not given."""
    raw = scalar(inputs, name)
    if raw is None:
        return default
    value = float(raw)
    if not math.isfinite(value) or not low <= value <= high or (above and value == low):
        bound = f"above {low:g} and at most {high:g}" if above else f"between {low:g} and {high:g}"
        raise InvalidArgument(f"{name} is {str(raw).removesuffix('.0')}: it must be {bound}")
    return value


def shown(value: object) -> str:
    """What a client sent, quoted in an error: short, and a lone surrogate as its escape."""
    quoted = repr(value)
    return quoted if len(quoted) <= _MAX_QUOTED else f"{quoted[:_MAX_QUOTED]}…"
