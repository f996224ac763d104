"""Reads how sure the judge must be to keep a bound on wrong answers, as it was calibrated.

A table is for one checkpoint of the judge. It lies beside the judge's model; `build/judge/measure.py` makes
one from an operator's own pairs.
"""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from trimodal.errors import SettingsError
from trimodal.repository import FAKE, Built

FILE = "calibration.json"
COMMAND = "python build/judge/measure.py PAIRS --calibrate FILE.json"


class Point(BaseModel):
    """What passes at one threshold. Rates are 0 to 1; the bound has 95 % confidence (Clopper and Pearson)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    threshold: float = Field(ge=0, le=1, description="P(same) that a pair must reach")
    hit_rate: float = Field(ge=0, le=1, description="of rewordings")
    false_hits: int = Field(ge=0, description="of near-identical questions with another answer")
    false_hit_upper: float = Field(ge=0, le=1, description="upper bound of their share")


class Calibration(BaseModel):
    """Curve of one judge on one set of pairs; its thresholds rise."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    checkpoint_sha256: str = Field(min_length=1, description="of the judge: `source_sha256` of its manifest")
    reading: Literal["shorter_first"] = Field(description="order of a pair; see `in_order`")
    languages: tuple[str, ...] = Field(("en",), min_length=1, description="that it was trained for")
    foreign_threshold: float = Field(0.999, ge=0, le=1, description="for questions in other languages")
    pairs: str = Field(description="file that the curve was measured on")
    paraphrases: int = Field(ge=1)
    hard_negatives: int = Field(ge=1)
    curve: tuple[Point, ...] = Field(min_length=1)

    @classmethod
    def read(cls, path: Path, checkpoint: str) -> Calibration:
        """Reads a file.

        Args:
            checkpoint: SHA-256 of the judge's checkpoint.

        Raises:
            SettingsError: there is none, it is damaged, or it is for another checkpoint.
        """
        try:
            found = cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            why = "damaged" if isinstance(error, ValueError) else error.strerror
            raise SettingsError(
                f"{path}: no calibration of the cache ({why}); make one with: {COMMAND}"
            ) from None
        if found.checkpoint_sha256 != checkpoint:
            raise SettingsError(
                f"{path} calibrates the cache for the judge's checkpoint {found.checkpoint_sha256[:12]}, "
                f"served is {checkpoint[:12]}: calibrate with: {COMMAND}"
            )
        return found

    def threshold(self, max_false_hit: float) -> float:
        """Returns the lowest P(same) from which on the bound on false hits is at most `max_false_hit`.

        Raises:
            SettingsError: there is none; the sentence has the least bound that can be had.
        """
        held = list(takewhile(lambda point: point.false_hit_upper <= max_false_hit, reversed(self.curve)))
        if held:
            return min(point.threshold for point in held)
        least = min(point.false_hit_upper for point in self.curve)
        raise SettingsError(
            f"cache_max_false_hit {max_false_hit:g}: no threshold keeps it; the least bound on {self.pairs} "
            f"({self.hard_negatives} near-identical pairs) is {least:.4f}, more pairs can show a lower one"
        )


OF_FAKE = Calibration(
    checkpoint_sha256=FAKE,
    reading="shorter_first",
    pairs="none: a fake has not been measured",
    paraphrases=1,
    hard_negatives=1,
    curve=(Point(threshold=0.8, hit_rate=0, false_hits=0, false_hit_upper=0),),
)
"""Of the fake judge: four words of five in common."""


def calibration_of(judge: Built, own: Path | None, max_false_hit: float) -> Calibration:
    """The operator's own calibration, or the strictest of those that lie beside the judge's models.

    Raises:
        SettingsError: there is none for this checkpoint, or no threshold keeps `max_false_hit`.
    """
    if own is None and judge.checkpoint == FAKE:
        return OF_FAKE
    files = [own] if own else [directory / FILE for directory in judge.directories]
    found = [Calibration.read(file, judge.checkpoint) for file in files]
    return max(found, key=lambda one: one.threshold(max_false_hit))
