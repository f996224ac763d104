"""Values of the stages: labels seen, pieces of the answer, and the exception that stops a stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

HEARD, SAW, ANSWER = "heard", "saw", "answer"
STAGES = (HEARD, SAW, ANSWER)


class Stopped(Exception):
    """The request is over: its client left, its time is up, or another stage failed."""


@dataclass(frozen=True)
class Saw:
    """Labels of the image, best first, with their probabilities."""

    labels: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()


@dataclass(frozen=True)
class Piece:
    """New text of the answer, with the usage so far; `finish_reason` is empty until the last one.

    Attributes:
        note: with the last, how the answer came about: the llm's other outputs, name → array [1].
    """

    text: str
    finish_reason: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    note: Mapping[str, NDArray[Any]] = field(default_factory=dict)
