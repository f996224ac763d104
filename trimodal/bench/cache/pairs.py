"""Reads labelled pairs of questions and measures them: the cosine of each, and the guard's verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trimodal.cache.guard.guard import Guard
from trimodal.embedding.engines.protocol import TextEmbedder
from trimodal.errors import OperatorError

PairClass = Literal[
    "paraphrase", "number", "unit", "date", "name", "negation", "antonym", "roles", "subject", "unrelated"
]
CLASSES: tuple[PairClass, ...] = get_args(PairClass)
HARD = frozenset(CLASSES) - {"paraphrase", "unrelated"}
"""Nearly the same words, another answer: false hits are counted among these."""
MOST_BYTES = 64 << 20
_BATCH = 32


class Pair(BaseModel):
    """One line of a file of pairs: two questions and whether one answer serves both."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    id: str = Field(min_length=1, max_length=64)
    a: str = Field(min_length=1, max_length=4096)
    b: str = Field(min_length=1, max_length=4096)
    label: Literal["same", "different"]
    kind: PairClass = Field(alias="class")
    domain: str = Field("", max_length=64)


@dataclass(frozen=True)
class Measured:
    """A pair, the cosine of its questions, and the guard's reason against it ("" when it passes)."""

    pair: Pair
    cosine: float
    reason: str


def read_pairs(path: Path) -> list[Pair]:
    """Reads the pairs of a JSON-lines file; empty lines are skipped.

    Raises:
        OperatorError: no such file, or a line that is no pair: names the line and the field.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise OperatorError(f"{path}: more than {MOST_BYTES >> 20} MB of pairs")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"{path}: no readable file of pairs ({type(error).__name__})") from None
    pairs = [_pair(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not pairs:
        raise OperatorError(f"{path}: there are no pairs in it")
    return pairs


def _pair(path: Path, number: int, line: str) -> Pair:
    try:
        pair = Pair.model_validate(json.loads(line))
        for text in (pair.a, pair.b):
            text.encode()
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the line"
        raise OperatorError(f"{path}, line {number}: {field}: {first['msg']}") from None
    except (ValueError, RecursionError):
        raise OperatorError(f"{path}, line {number}: no JSON object in UTF-8") from None
    if (pair.label == "same") != (pair.kind == "paraphrase"):
        raise OperatorError(
            f"{path}, line {number}: label: 'same' belongs to class 'paraphrase', to no other"
        )
    return pair


def measure_pairs(pairs: Sequence[Pair], embedder: TextEmbedder, guard: Guard) -> list[Measured]:
    """Cosine and reason of each pair. The guard judges both ways."""
    cosines = cosines_of(pairs, embedder)
    return [
        Measured(pair, cosine, guard.judge(pair.a, pair.b, cosine))
        for pair, cosine in zip(pairs, cosines, strict=True)
    ]


def cosines_of(pairs: Sequence[Pair], embedder: TextEmbedder) -> list[float]:
    """Returns the cosine of the two questions of each pair."""
    result: list[float] = []
    for start in range(0, len(pairs), _BATCH):
        batch = pairs[start : start + _BATCH]
        vectors = embedder.embed([text for pair in batch for text in (pair.a, pair.b)]).vectors
        result += [float(np.dot(vectors[2 * row], vectors[2 * row + 1])) for row in range(len(batch))]
    return result
