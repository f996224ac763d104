"""Reads labelled pairs of questions, measures them with the judge, and bounds the rates of hits.

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
from trimodal.cache.semantic.decision import LEAST_SIMILARITY, known_score
from trimodal.embedding.engines.protocol import TextEmbedder
from trimodal.errors import OperatorError
from trimodal.judge.engines.protocol import PairJudge
from trimodal.judge.language import is_foreign

SameClass = Literal[
    "paraphrase", "case", "contraction", "spelling", "politeness", "fronting", "passive", "synonym", "light",
    "heavy", "typo", "filler", "command", "abbreviation", "fragment",
]  # fmt: skip
HardClass = Literal[
    "near", "number", "unit", "currency", "date", "version", "name", "place", "tool", "negation", "antonym",
    "roles", "quantifier", "scope", "tense", "aspect", "modality", "comparison", "condition", "cause",
    "severity", "eligibility", "person", "order", "part", "subject",
]  # fmt: skip
PairClass = Literal[SameClass, HardClass, "unrelated"]
SAME: tuple[SameClass, ...] = get_args(SameClass)
"""One answer serves both questions: rewordings. `paraphrase` is any of the others."""
HARD: tuple[HardClass, ...] = get_args(HardClass)
"""Nearly the same words, another answer: false hits are counted among these. `near` is any of the others."""
CLASSES: tuple[PairClass, ...] = (*SAME, *HARD, "unrelated")
MOST_BYTES = 64 << 20
_BATCH = 32
CONFIDENCE = 0.95
_STEP = 0.01
THRESHOLDS = (*(round(1 / (1 + math.exp(-logit / 4)), 6) for logit in range(37)), 1.0)
"""0.5 to 0.999877, and 1: words alone."""


class Pair(BaseModel):
    """One line of a file of pairs: two questions and whether one answer serves both."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    id: str = Field(min_length=1, max_length=64)
    a: str = Field(min_length=1, max_length=4096)
    b: str = Field(min_length=1, max_length=4096)
    label: Literal["same", "different"]
    kind: PairClass = Field(alias="class")
    domain: str = Field("", max_length=64)
    # What the audit adds to pairs that it writes down, for whoever labels them.
    score: float | None = None
    answers: tuple[str, str] | None = None


@dataclass(frozen=True)
class Measured:
    """A pair, the cosine of its questions, and P(same) in the less likely direction.

    `score` is 1 or 0 where the cache does not ask the judge; `foreign`: not in the judge's languages.
    """

    pair: Pair
    cosine: float
    score: float
    foreign: bool = False


def read_pairs(path: Path) -> list[Pair]:
    """Reads the pairs of a JSON-lines file; empty lines are skipped.

    Raises:
        OperatorError: no such file, or a line that is no pair: names the line and the field.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise OperatorError(f"{path}: more than {MOST_BYTES >> 20} MB of pairs")
        lines = path.read_text(encoding="utf-8").split("\n")  # texts may hold other ends of lines
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


def measure_pairs(
    pairs: Sequence[Pair], embedder: TextEmbedder, judge: PairJudge, languages: Sequence[str]
) -> list[Measured]:
    """Cosine and score of each pair. `languages`: that the judge was trained for."""
    found = zip(pairs, cosines_of(pairs, embedder), scores_of(pairs, judge), strict=True)
    return [
        Measured(pair, cosine, score, is_foreign(pair.a, languages) or is_foreign(pair.b, languages))
        for pair, cosine, score in found
    ]


def scores_of(pairs: Sequence[Pair], judge: PairJudge) -> list[float]:
    """Returns P(same) of each pair in the less likely direction, as the cache would have it."""
    scores: list[float] = []
    for start in range(0, len(pairs), _BATCH):
        batch = pairs[start : start + _BATCH]
        ways = [way for pair in batch for way in ((pair.a, pair.b), (pair.b, pair.a))]
        judged = judge.judge(ways).same.reshape(-1, 2).min(1)
        for pair, score in zip(batch, judged, strict=True):
            known = known_score(pair.a, pair.b)
            scores.append(float(score) if known is None else known)
    return scores


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


@dataclass(frozen=True)
class Bar:
    """What a pair must reach to be a hit; without P(same) the cosine decides alone."""

    cosine: float
    score: float = 0.0
    foreign: float = 0.0

    def passes(self, one: Measured) -> bool:
        """Whether the pair is a hit."""
        wanted = max(self.score, self.foreign) if one.foreign else self.score
        return one.cosine >= self.cosine and one.score >= wanted


def share(measured: Iterable[Measured], bar: Bar) -> Share:
    """How many of these would be a hit."""
    every = list(measured)
    return Share(len(every), sum(map(bar.passes, every)))


def hard(measured: Iterable[Measured]) -> list[Measured]:
    """Returns the near-identical questions with another answer."""
    return [one for one in measured if one.pair.kind in HARD]


def rewordings(measured: Iterable[Measured]) -> list[Measured]:
    """Returns the questions with the same answer."""
    return [one for one in measured if one.pair.label == "same"]


def least_cosine(measured: Sequence[Measured], max_false_hit: float) -> float:
    """The lowest cosine, in steps of 0.01, that keeps the bound on these pairs; above 1: none does."""
    negatives = hard(measured)
    kept = 1 + _STEP
    for step in range(round(1 / _STEP), -1, -1):
        if share(negatives, Bar(step * _STEP)).bounds[1] > max_false_hit:
            break
        kept = step * _STEP
    return round(kept, 2)


def calibrate(
    measured: Sequence[Measured], checkpoint: str, source: str, languages: Sequence[str] = ("en",)
) -> Calibration:
    """Makes the curve over P(same), in even steps of its logit: near 1, where it matters, they are close.

    Raises:
        ValueError: there are no rewordings, or no near-identical pairs.
    """
    reworded, negatives = rewordings(measured), hard(measured)
    if not reworded or not negatives:
        raise ValueError("a calibration needs rewordings and near-identical pairs with another answer")
    curve = []
    for threshold in THRESHOLDS:
        bar = Bar(LEAST_SIMILARITY, threshold)
        false = share(negatives, bar)
        curve.append(
            Point(
                threshold=threshold,
                hit_rate=round(share(reworded, bar).rate, 6),
                false_hits=false.hits,
                false_hit_upper=min(1.0, math.ceil(false.bounds[1] * 1e6) / 1e6),  # never too low
            )
        )
    return Calibration(
        checkpoint_sha256=checkpoint,
        languages=tuple(languages),
        pairs=source,
        paraphrases=len(reworded),
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
