"""Tells a client what its request was doing when, if it sent the request parameter `trace`.

The answer is the output `trace` of the last response: JSON, a list of spans. Times are nanoseconds of the
machine's monotonic clock, which all its processes share and which Triton's own trace counts too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimodal.errors import InvalidArgument

NAME = "trace"
Span = dict[str, Any]
_gathered: ContextVar[list[Span] | None] = ContextVar("gathered", default=None)


def span(name: str, begin: float, end: float, **details: Any) -> Span:
    """One thing that took time: `begin` and `end` in seconds of `time.perf_counter` or `time.monotonic`."""
    return {"name": name, "begin": round(begin * 1e9), "end": round(end * 1e9), **details}


@contextmanager
def gathering() -> Iterator[list[Span]]:
    """Gathers what this thread notes within: the steps of a batch, for those of its requests that want it."""
    spans: list[Span] = []
    token = _gathered.set(spans)
    try:
        yield spans
    finally:
        _gathered.reset(token)


def note(name: str, begin: float, end: float) -> None:
    """A step of the batch under way, as `span`; nothing where nobody gathers."""
    if (spans := _gathered.get()) is not None:
        spans.append(span(name, begin, end))


def wanted(parameters: Mapping[str, Any]) -> tuple[bool, Mapping[str, Any]]:
    """Whether the request wants its trace, and its other parameters. Raises: InvalidArgument."""
    if NAME not in parameters:
        return False, parameters
    others = dict(parameters)
    value = others.pop(NAME)
    if not isinstance(value, bool):
        raise InvalidArgument(f"trace is {str(value)[:60]!r}: true or false is needed")
    return value, others


def column(spans: Sequence[Span], rows: int = 1) -> dict[str, NDArray[Any]]:
    """The output tensor of these spans, name → array [rows]; the first row has them."""
    return {NAME: np.array([json.dumps(spans).encode(), *[b""] * (rows - 1)], dtype=object)}


def shifted(spans: Sequence[Span], end: float) -> list[Span]:
    """Spans of another machine on this one's clock: the last ends at `end`, when they were received."""
    by = round(end * 1e9) - max((one["end"] for one in spans), default=0)
    return [{**one, "begin": one["begin"] + by, "end": one["end"] + by} for one in spans]


def read(outputs: Mapping[str, NDArray[Any]]) -> list[Span]:
    """The spans in a model's outputs; none: it sent no trace."""
    tensor = outputs.get(NAME)
    return [] if tensor is None else list(json.loads(bytes(tensor.reshape(-1)[0])))
