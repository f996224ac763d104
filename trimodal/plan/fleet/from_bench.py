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

import numpy as np
from pydantic import ValidationError

from trimodal.errors import SettingsError
from trimodal.files import read_at_most
from trimodal.plan.fleet.spec import ReplicaFigures
from trimodal.settings import describe

SIDE = "served"  # of a bench that has a bare engine beside it
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


def read_points(file: Path) -> list[Point]:
    """The cases of a bench's JSON that say enough. Raises: SettingsError naming the file and the field."""
    try:
        whole = json.loads(read_at_most(file))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{file}: cannot be read: {error}") from None
    cases = whole.get("cases") if isinstance(whole, dict) else None
    if not isinstance(cases, list):
        raise SettingsError(f"{file}: cases: is missing: the JSON of `trimodal bench llm` is needed")
    points = [
        read_point(file, f"cases.{index}", case)
        for index, case in enumerate(cases)
        if not isinstance(case, Mapping) or case.get("side", SIDE) == SIDE
    ]
    if not points:
        raise SettingsError(f"{file}: cases: none of side '{SIDE}'")
    return points


def describe_replica(points: Sequence[Point], given: Mapping[str, Any], file: Path) -> ReplicaFigures:
    """The description.

    Args:
        given: fields that no bench measures, such as num_kv_blocks; they win over what was measured.

    Raises:
        SettingsError: too little was measured, or a field is missing or wrong.
    """
    # Checked first: without them a bench cannot be read, and the step times are not known yet.
    budget = _figures(file, {"step_ms": [(1, 1)], "prefill_us": 0, **given}).max_num_batched_tokens
    prefill, overhead = _prefill(points, budget, file)
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
    return _figures(file, {**measured, **given})


def _figures(file: Path, values: Mapping[str, Any]) -> ReplicaFigures:
    try:
        return ReplicaFigures.model_validate(values)
    except ValidationError as error:
        raise SettingsError(f"{file}: {describe(error, ReplicaFigures)}") from None


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
    slope, rest = np.polyfit(prompts, rests, 1)
    if slope < 0:
        raise SettingsError(f"{file}: cases: TTFT falls with longer prompts: measure longer, and alone")
    return float(slope), max(0.0, float(rest))


def read_point(file: Path, where: str, case: Any) -> Point:
    """One case. Raises: SettingsError naming the file and the field."""
    try:
        tpot, ttft = (
            float(case["metrics"][name]["percentiles"]["p50"]) / 1e3 for name in ("tpot_ms", "ttft_ms")
        )
        computed = float(case["input_tokens_per_s"]) * (1 - float(case.get("cached_share") or 0.0))
        batch = float(case["output_tokens_per_s"]) * tpot
        prompt = computed / float(case["requests_per_s"])
        point = Point(batch, tpot, ttft, prompt, computed, float(case["in_flight"]))
    except ZeroDivisionError:
        raise SettingsError(f"{file}: {where}.requests_per_s: nothing was answered") from None
    except (KeyError, TypeError, ValueError) as error:
        raise SettingsError(f"{file}: {where}: a number is missing ({error})") from None
    if not computed > 0:
        why = "no prompt token was computed, or the server does not tell (usage)"
        raise SettingsError(f"{file}: {where}.input_tokens_per_s: {why}")
    return point
