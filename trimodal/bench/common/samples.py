"""Values that requests and rounds measured, and their summaries.

Definitions as everywhere here: TTFT is send to first text (the bare engine: first
token), ITL each gap after it, tok/s all completion tokens over the round's wall time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from trimodal.client.timing import percentile

One = TypeVar("One")


@dataclass(frozen=True)
class Sample:
    """One answer; times in seconds."""

    ttft: float
    itl: tuple[float, ...]
    tokens: int


@dataclass(frozen=True)
class Round:
    """Answers that ran together, and the wall time from the first send to the last end."""

    samples: tuple[Sample, ...]
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        return sum(sample.tokens for sample in self.samples) / self.seconds


@dataclass(frozen=True)
class Summary:
    """Several rounds of one side; milliseconds except for the rate."""

    tokens_per_second: float
    ttft_p50: float
    ttft_p95: float
    itl_p50: float
    itl_p99: float


def summarise(rounds: Sequence[Round]) -> Summary:
    """Summarises: the median round's rate, and percentiles over all answers of all rounds."""

    def ms(values: Iterable[float], percent: float) -> float:
        value = percentile(list(values), percent)
        return float("nan") if value is None else value * 1e3

    samples = [sample for one in rounds for sample in one.samples]
    gaps = [gap for sample in samples for gap in sample.itl]
    return Summary(
        median(one.tokens_per_second for one in rounds),
        ms((sample.ttft for sample in samples), 50),
        ms((sample.ttft for sample in samples), 95),
        ms(gaps, 50),
        ms(gaps, 99),
    )


def paired_ratio(ours: Sequence[One], theirs: Sequence[One], value: Callable[[One], float]) -> float:
    """Median over pairs of neighbouring rounds: what drifts in both cancels out."""
    return median(value(our) / value(their) for our, their in zip(ours, theirs, strict=True))
