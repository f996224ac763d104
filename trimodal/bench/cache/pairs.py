"""Reads labelled pairs of questions, measures them with the guard, and bounds the rates of hits.

The bounds are those of Clopper and Pearson (1934): exact for a binomial, never too narrow.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trimodal.cache.calibration import Calibration, Point
from trimodal.cache.guard.guard import Guard
from trimodal.embedding.engines.protocol import TextEmbedder
from trimodal.errors import OperatorError

SameClass = Literal[
    "paraphrase", "case", "contraction", "spelling", "politeness", "fronting", "passive", "synonym", "light",
    "heavy", "typo", "filler", "command", "abbreviation",
]  # fmt: skip
HardClass = Literal[
    "number", "unit", "currency", "date", "version", "name", "place", "tool", "negation", "antonym", "roles",
    "quantifier", "scope", "tense", "aspect", "modality", "comparison", "condition", "cause", "severity",
    "eligibility", "person", "order", "part", "subject",
]  # fmt: skip
PairClass = Literal[SameClass, HardClass, "unrelated"]
SAME: tuple[SameClass, ...] = get_args(SameClass)
"""One answer serves both questions: rewordings. `paraphrase` is any of the others."""
HARD: tuple[HardClass, ...] = get_args(HardClass)
"""Nearly the same words, another answer: false hits are counted among these."""
CLASSES: tuple[PairClass, ...] = (*SAME, *HARD, "unrelated")
MOST_BYTES = 64 << 20
_BATCH = 32
CONFIDENCE = 0.95
_STEP = 0.01


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
    if (pair.label == "same") != (pair.kind in SAME):
        wanted = "same" if pair.kind in SAME else "different"
        raise OperatorError(f"{path}, line {number}: label: class {pair.kind!r} is {wanted!r}")
    return pair


def measure_pairs(pairs: Sequence[Pair], embedder: TextEmbedder, guard: Guard) -> list[Measured]:
    """Cosine and reason of each pair. The guard judges both ways."""
    found = zip(pairs, cosines_of(pairs, embedder), strict=True)
    return [Measured(pair, cosine, guard.judge(pair.a, pair.b, cosine)) for pair, cosine in found]


def cosines_of(pairs: Sequence[Pair], embedder: TextEmbedder) -> list[float]:
    """Returns the cosine of the two questions of each pair."""
    result: list[float] = []
    for start in range(0, len(pairs), _BATCH):
        batch = pairs[start : start + _BATCH]
        vectors = embedder.embed([text for pair in batch for text in (pair.a, pair.b)]).vectors
        result += [float(np.dot(vectors[2 * row], vectors[2 * row + 1])) for row in range(len(batch))]
    return result


@dataclass(frozen=True)
class Share:
    """`hits` of `pairs`, and its rate with its bounds."""

    pairs: int
    hits: int

    @property
    def rate(self) -> float:
        """0 when there are no pairs."""
        return self.hits / self.pairs if self.pairs else 0.0

    @property
    def bounds(self) -> tuple[float, float]:
        """Lower and upper bound of the rate, together with 95 % confidence."""
        return clopper_pearson(self.hits, self.pairs)


def share(measured: Iterable[Measured], threshold: float, *, guarded: bool) -> Share:
    """How many of these would be a hit: near enough, and let through by the guard."""
    every = list(measured)
    return Share(len(every), sum(one.cosine >= threshold and not (guarded and one.reason) for one in every))


def hard(measured: Iterable[Measured]) -> list[Measured]:
    """Returns the near-identical questions with another answer."""
    return [one for one in measured if one.pair.kind in HARD]


def calibrate(measured: Sequence[Measured], checkpoint: str, source: str) -> Calibration:
    """Makes the curve over thresholds, in steps of 0.01, from where 98 % of passing paraphrases lie above.

    Raises:
        ValueError: there are no paraphrases, or no near-identical pairs.
    """
    paraphrases = [one for one in measured if one.pair.label == "same"]
    negatives = hard(measured)
    if not paraphrases or not negatives:
        raise ValueError("a calibration needs paraphrases and near-identical pairs with another answer")
    # Where a lower threshold gains but the odd paraphrase, it gains mostly risk.
    passing = sorted(one.cosine for one in paraphrases if not one.reason) or [1.0]
    farthest = passing[len(passing) // 50]
    curve = []
    for step in range(math.floor(min(farthest, 1.0) / _STEP), round(1 / _STEP) + 1):
        threshold = round(step * _STEP, 2)
        false = share(negatives, threshold, guarded=True)
        curve.append(
            Point(
                threshold=threshold,
                hit_rate=round(share(paraphrases, threshold, guarded=True).rate, 6),
                false_hits=false.hits,
                false_hit_upper=min(1.0, math.ceil(false.bounds[1] * 1e6) / 1e6),  # never too low
            )
        )
    return Calibration(
        checkpoint_sha256=checkpoint,
        pairs=source,
        paraphrases=len(paraphrases),
        hard_negatives=len(negatives),
        curve=tuple(curve),
    )


def clopper_pearson(hits: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Bounds of a rate of which `hits` of `trials` were seen; (0, 1) when there were none.

    Raises:
        ValueError: not 0 ≤ hits ≤ trials, or a confidence outside 0…1.
        OperatorError: scipy is not installed.
    """
    if not 0 <= hits <= trials or not 0 < confidence < 1:
        raise ValueError(f"{hits} of {trials} with confidence {confidence} is no share")
    if not trials:
        return 0.0, 1.0
    try:
        from scipy.stats import binomtest
    except ImportError:
        raise OperatorError("bounds of rates need scipy: pip install 'trimodal[bench]'") from None
    bounds = binomtest(hits, trials).proportion_ci(confidence)  # "exact", its default, is this
    return float(bounds.low), float(bounds.high)
