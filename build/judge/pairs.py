"""Reads labelled pairs of questions, and bounds the rate at which they pass.

`data/README.md` says what a line of a file holds.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from scipy.stats import binomtest

from trimodal.errors import OperatorError
from trimodal.judge.normaliser import normalise

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
DATA = Path(__file__).with_name("data")
PACKED = ".xz"  # ends the names of the project's own texts
TABLE = f".tsv{PACKED}"  # class, domain and the two questions a line, between tabs
MOST_BYTES = 64 << 20
WRONG = ("no JSON object in UTF-8", "not class, domain and two questions between tabs")  # of lines

normalised = cache(normalise)
"""The same as `normalise`, for texts that are read many times."""


class Example(NamedTuple):
    """Two questions and whether one answer serves both.

    Attributes:
        kind: of difference or sameness.
    """

    a: str
    b: str
    same: bool
    kind: str
    domain: str


class _Line(BaseModel):
    """One line of a file of pairs."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    id: str = Field(min_length=1, max_length=64)
    a: str = Field(min_length=1, max_length=4096)
    b: str = Field(min_length=1, max_length=4096)
    label: Literal["same", "different"]
    kind: PairClass = Field(alias="class")
    domain: str = Field("", max_length=64)


def read_text(path: Path) -> str:
    """The text of a file, which may be packed."""
    if path.suffix != PACKED:
        return path.read_text(encoding="utf-8")
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return file.read()


def read_pairs(path: Path) -> list[Example]:
    """The pairs of a JSON-lines file, or of one of the project's tables; empty lines are skipped.

    Raises:
        OperatorError: no such file, or a line that is no pair: names the line and the field.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise OperatorError(f"{path}: more than {MOST_BYTES >> 20} MB of pairs")
        lines = read_text(path).split("\n")  # texts may hold other ends of lines
    except (OSError, UnicodeDecodeError, EOFError, lzma.LZMAError) as error:
        raise OperatorError(f"{path}: no readable file of pairs ({type(error).__name__})") from None
    pairs = [_pair(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not pairs:
        raise OperatorError(f"{path}: there are no pairs in it")
    return pairs


def read_files(paths: Iterable[Path]) -> list[Example]:
    """The pairs of several files. Raises: OperatorError, as `read_pairs`."""
    return [pair for path in paths for pair in read_pairs(path)]


def _pair(path: Path, number: int, line: str) -> Example:
    try:
        pair = _row(line) if path.name.endswith(TABLE) else _Line.model_validate(json.loads(line))
        for text in (pair.a, pair.b):
            text.encode()
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the line"
        raise OperatorError(f"{path}, line {number}: {field}: {first['msg']}") from None
    except (ValueError, RecursionError):
        raise OperatorError(f"{path}, line {number}: {WRONG[path.name.endswith(TABLE)]}") from None
    if (pair.label == "same") != (pair.kind in SAME):
        wanted = "same" if pair.kind in SAME else "different"
        raise OperatorError(f"{path}, line {number}: label: class {pair.kind!r} is {wanted!r}")
    return Example(pair.a, pair.b, pair.label == "same", pair.kind, pair.domain)


def _row(line: str) -> _Line:
    kind, domain, a, b = line.split("\t")
    label = "same" if kind in SAME else "different"
    return _Line.model_validate(
        {"id": "row", "a": a, "b": b, "label": label, "class": kind, "domain": domain}
    )


def clopper_pearson(hits: int, trials: int) -> tuple[float, float]:
    """Bounds, at 95 %, of a rate of which `hits` of `trials` were seen; (0, 1) when there were none."""
    if not trials:
        return 0.0, 1.0
    bounds = binomtest(hits, trials).proportion_ci(0.95)  # "exact", its default, is this
    return float(bounds.low), float(bounds.high)
