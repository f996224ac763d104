"""Writes the description of a replica from what `trimodal bench llm --json` measured of one.

Of closed loops with several numbers of clients the time of a step follows at several batch sizes:

    batch     = output tokens a second × TPOT                 (sequences that decode, Little's law)
    step time = TPOT × (1 − prefill seconds a token × prompt tokens a second that others had computed)

The time of a prompt token is the slope of TTFT over the computed prompt tokens, of the cases with the least
batch, after the steps were taken off that a prompt needs. With prompts of one length only it is what is left
of TTFT; with several, TTFT at no tokens is what a request costs outside the engine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from trimodal.errors import SettingsError
from trimodal.plan.fleet.figures import ReplicaFigures, checked, read_plain

_BUDGET = int(ReplicaFigures.model_fields["max_num_batched_tokens"].default)
_ALONE = 1.5  # a batch so small tells of prefill: nothing waits
_APART = 1.25  # prompts that differ by less are taken as equally long


@dataclass(frozen=True)
class Point:
    """One measured case: seconds and tokens a second."""

    batch: float
    tpot: float
    ttft: float
    prompt: float  # computed tokens of a prompt
    computed: float  # prompt tokens a second, without cached ones
    in_flight: float  # requests under way: a stream does not wait for its own prompt


def read_points(file: Path, side: str = "served") -> list[Point]:
    """The cases of a bench's JSON that say enough. Raises: SettingsError naming the file and the field."""
    cases = read_plain(file).get("cases")
    if not isinstance(cases, list):
        raise SettingsError(f"{file}: cases: is missing: the JSON of `trimodal bench llm --load …` is needed")
    points = []
    for index, case in enumerate(cases):
        if not isinstance(case, Mapping):
            raise SettingsError(f"{file}: cases.{index}: an object is needed")
        if case.get("side", side) != side:
            continue
        points.append(_point(file, f"cases.{index}", case))
    if not points:
        raise SettingsError(f"{file}: cases: none of side '{side}'")
    return points


def describe_replica(points: Sequence[Point], given: Mapping[str, Any], file: Path) -> ReplicaFigures:
    """The description.

    Args:
        given: fields that no bench measures, such as num_kv_blocks; they win over what was measured.

    Raises:
        SettingsError: too little was measured, or a field is missing or wrong.
    """
    try:
        budget = int(given.get("max_num_batched_tokens", _BUDGET))
    except ValueError:
        budget = _BUDGET  # `checked` says what is wrong with it
    prefill, overhead = _prefill(points, max(1, budget), file)
    steps: dict[int, list[float]] = {}
    for point in points:
        share = 1 - prefill * point.computed * (1 - 1 / max(1.0, point.in_flight))
        if share > 0:  # else prompts alone kept the engine busy
            steps.setdefault(max(1, round(point.batch)), []).append(1e3 * point.tpot * share)
    if not steps:
        raise SettingsError(f"{file}: cases: prefill fills all time: measure with longer answers")
    measured = {
        "step_ms": [(batch, round(median(times), 4)) for batch, times in sorted(steps.items())],
        "prefill_us": round(1e6 * prefill, 4),
        "overhead_ms": round(1e3 * overhead, 4),
    }
    return checked(file, {**measured, **given}, ReplicaFigures)


def as_toml(figures: ReplicaFigures, comment: str) -> str:
    """The description as a file."""
    lines = [f"# {line}" for line in comment.splitlines()]
    for name, value in figures.model_dump(mode="json", exclude_none=True).items():
        lines.append(f"{name} = {json.dumps(value)}")
    return "\n".join(lines) + "\n"


def _prefill(points: Sequence[Point], budget: int, file: Path) -> tuple[float, float]:
    """Seconds of a prompt token, and of a request outside the engine."""
    least = min(point.batch for point in points)
    alone = [point for point in points if point.batch <= max(_ALONE, least * 1.1)]
    prompts = [point.prompt for point in alone]
    step = min(point.tpot for point in alone)
    rests = [point.ttft - step * math.ceil(point.prompt / budget - 1e-6) for point in alone]
    if max(prompts) < _APART * min(prompts):
        return max(0.0, median(rests) / fmean(prompts)), 0.0
    mean_x, mean_y = fmean(prompts), fmean(rests)
    spread = sum((prompt - mean_x) ** 2 for prompt in prompts)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(prompts, rests, strict=True)) / spread
    if slope < 0:
        raise SettingsError(f"{file}: cases: TTFT falls with longer prompts: measure longer, and alone")
    return slope, max(0.0, mean_y - slope * mean_x)


def _point(file: Path, where: str, case: Mapping[str, Any]) -> Point:
    def number(*path: str) -> float:
        value: Any = case
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
            raise SettingsError(f"{file}: {where}.{'.'.join(path)}: a number is needed, not {value!r}")
        return float(value)

    tpot = number("metrics", "tpot_ms", "percentiles", "p50", "value") / 1e3
    ttft = number("metrics", "ttft_ms", "percentiles", "p50", "value") / 1e3
    requests = number("requests_per_s")
    if not requests:
        raise SettingsError(f"{file}: {where}.requests_per_s: nothing was answered")
    cached = number("cached_share") if case.get("cached_share") is not None else 0.0
    computed = number("input_tokens_per_s") * (1 - cached)
    batch = number("output_tokens_per_s") * tpot
    return Point(batch, tpot, ttft, computed / requests, computed, number("in_flight"))
