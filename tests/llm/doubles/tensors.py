"""Input tensors of `llm` from plain values, of the types that its clients send."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from trimodal.llm.request.terms import PARAMETERS

Inputs = dict[str, np.ndarray[Any, Any]]
_JSON = ("messages", "tools", "response_format", "logit_bias")
_TYPES: dict[type, Any] = {str: object, int: np.int32, float: np.float32, bool: np.bool_}


def tensors(**fields: Any) -> Inputs:
    """A list is several values, but of a chat and of what else is JSON; an array stays as it is."""
    return {name: _tensor(name, value) for name, value in fields.items()}


def _tensor(name: str, value: Any) -> np.ndarray[Any, Any]:
    if isinstance(value, np.ndarray):
        return value
    if name in _JSON and not isinstance(value, str | bytes):
        value = json.dumps(value)
    values = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(one, str | bytes) for one in values):
        return np.array([one.encode() if isinstance(one, str) else one for one in values], dtype=object)
    return np.array(values, np.uint64 if name == "seed" else _TYPES[PARAMETERS.get(name, int)])
