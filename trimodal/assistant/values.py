"""Defines what the stages hand on, labels seen and pieces of the answer, and makes output tensors of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from trimodal import trace
from trimodal.trace import Span

HEARD, SAW, ANSWER = "heard", "saw", "answer"
STAGES = (HEARD, SAW, ANSWER)
Columns = dict[str, NDArray[Any]]
Versions = Mapping[str, str]
"""Model → the version of it to ask."""
NO_VERSIONS: Versions = MappingProxyType({})


class Stopped(Exception):
    """The request is over: its client left, its time is up, or another stage failed."""


class Label(BaseModel):
    """What an image was found to show; `score` is its probability."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str
    score: float


Labels = tuple[Label, ...]
"""Of one image, best first."""


@dataclass(frozen=True)
class Piece:
    """New text of the answer; `finish_reason` is empty until the last one.

    Attributes:
        columns: the llm's outputs, name → array [1]: the usage so far, and with the last how it came about.
    """

    text: str
    finish_reason: str = ""
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)


def saw_columns(saw: Labels) -> Columns:
    """What the image shows; `labels` and `scores` are [k], best first."""
    scores = np.array([one.score for one in saw], np.float32)
    return texts(stage=SAW, text_output="") | {"labels": _strings(one.label for one in saw), "scores": scores}


def answer_columns(
    piece: Piece, timing: Mapping[str, float | None], spans: Sequence[Span] | None = None
) -> Columns:
    """New text of the answer; with the last, how it came about and how long each stage took (ms)."""
    times = texts(timing=json.dumps(timing)) if piece.finish_reason else {}
    if piece.finish_reason and spans is not None:
        times |= trace.column(spans)
    return {**texts(stage=ANSWER), **piece.columns, **times}


def texts(**values: str) -> Columns:
    return {name: _strings([value]) for name, value in values.items()}


def _strings(values: Iterable[str]) -> NDArray[np.object_]:
    return np.array([value.encode() for value in values], dtype=object)
