"""Sends a load of several models to one server, and judges each by its own SLO.

A mix names a rate for each model; a load of 2 is twice all of them. Requests of all parts are one open loop.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from trimodal.bench.load.generator import LoadRun, Send, poisson
from trimodal.bench.load.records import TIMEOUT, UNSENT, Record
from trimodal.bench.load.slo import Slo, parse_slo
from trimodal.bench.load.statistics import summarise
from trimodal.errors import SettingsError, Unavailable
from trimodal.tune.objective import LOAD, figure_of, least_share, violation
from trimodal.tune.search import Round, Trial, TrialError

CUT_S = 6.0  # of a live stream: the load is even after so long
UNDER_WAY = " streams"  # behind a model's name: how many live ones were under way, on average
_OVERLOAD = {TIMEOUT, UNSENT, Unavailable.code.lower()}  # outcomes: a queue is full, or an answer too late
_EXPECTED = 5  # requests of each part in a run: a longer one is needed where fewer would come
_FORM = re.compile(r"(?P<model>[\w.-]+)@(?P<rate>[^:]+):(?P<slo>.+)", re.DOTALL)
_MOST_RATE = 10_000.0


@dataclass(frozen=True)
class Part:
    """One model's part of a mix. `rate`: requests or live streams a second at load 1."""

    model: str
    rate: float
    slo: Slo

    def __str__(self) -> str:
        return f"{self.model}@{self.rate:g}:{self.slo.text}"

    @property
    def figures(self) -> list[str]:
        """The figure that each bound is on."""
        return [f"{self.model} {figure_of(bound)}" for bound in self.slo.bounds]


def parse_mix(texts: Iterable[str]) -> tuple[Part, ...]:
    """Reads `MODEL@RATE:BOUNDS` of each part. Raises: SettingsError naming the part and what is wrong."""
    parts = tuple(map(_part, texts))
    for model, times in Counter(part.model for part in parts).items():
        if times > 1:
            raise SettingsError(f"--mix {model}: named {times} times; one part for each model")
    return parts


def _part(text: str) -> Part:
    found = _FORM.fullmatch(text.strip())
    if not found:
        raise SettingsError(f"--mix {text}: a form as llm@2:p95_ttft_ms<=500,p95_itl_ms<=60 is needed")
    try:
        rate = float(found["rate"])
    except ValueError:
        rate = math.nan
    if not 0 < rate <= _MOST_RATE:
        raise SettingsError(f"--mix {text}: a rate above 0 and at most {_MOST_RATE:g} a second is needed")
    try:
        slo = parse_slo(found["slo"])
    except SettingsError as error:
        raise SettingsError(f"--mix {found['model']}: {error}") from None
    if not slo.bounds:
        raise SettingsError(f"--mix {text}: without a bound every load is kept")
    return Part(found["model"], rate, slo)


class MixedLoad:
    """All parts as one open loop: says when a request is due, sends it to its model, judges each part.

    Args:
        targets: what sends a request of each part.
        factor: load, in times the mix.
        seed: the same one has the same arrivals at every load, only faster.
    """

    def __init__(self, parts: Sequence[Part], targets: Sequence[Send], factor: float, seed: int) -> None:
        self._parts, self._targets, self._factor, self._seed = parts, targets, factor, seed
        self._owners: list[tuple[int, int]] = []  # by number of a request: its part, and its number there

    def arrivals(self) -> Iterator[float]:
        """When requests are due, of all parts."""
        sent = [0] * len(self._parts)
        for at, index in heapq.merge(*map(self._arrivals, range(len(self._parts)))):
            self._owners.append((index, sent[index]))
            sent[index] += 1
            yield at

    def _arrivals(self, index: int) -> Iterator[tuple[float, int]]:
        rate, seed = self._factor * self._parts[index].rate, self._seed * len(self._parts) + index
        return ((at, index) for at in poisson(rate, seed))

    async def send(self, number: int) -> Record:
        index, own = self._owners[number]
        return await self._targets[index](own)

    def seconds(self, least: float) -> float:
        """How long a run has to be for a few requests of each part."""
        return max(least, *(_EXPECTED / (self._factor * part.rate) for part in self._parts))

    def judge(self, run: LoadRun) -> Round:
        """By how much the parts miss their SLOs.

        Raises: TrialError: a model answers nothing, or its answers have no such figure.
        """
        if run.stopped:
            raise TrialError(run.stopped, "failed")
        short, figures = 0.0, {LOAD.name: self._factor, "client_cpu_share": run.cpu_share}
        for index, part in enumerate(self._parts):
            own = tuple(record for record in run.records if self._owners[record.number][0] == index)
            summary = summarise(replace(run, records=own), part.slo)
            if not summary.requests:
                continue  # none was due
            if not summary.ok and not _OVERLOAD & summary.outcomes.keys():
                raise TrialError(
                    f"no request of {part.model} succeeded: {next(iter(summary.errors))}", "failed"
                )
            short += violation(summary, part.slo, LOAD)
            figures[f"{part.model} requests_per_s"] = summary.requests_per_s
            figures[f"{part.model} error_rate"] = summary.error_rate
            if "lag_ms" in summary.metrics:
                figures[f"{part.model}{UNDER_WAY}"] = summary.in_flight
            for name, verdict in zip(part.figures, summary.verdicts, strict=True):
                if verdict.value is None and summary.ok:
                    raise TrialError(f"{name} is no figure of its answers", "failed")
                if verdict.value is not None:
                    figures[name] = verdict.value
        return Round(self._factor, short, figures)


def missed(parts: Sequence[Part], trial: Trial) -> list[str]:
    """The bounds that a trial misses, each with its figure."""
    found = []
    for part in parts:
        least = least_share(part.slo)
        for bound in part.slo.bounds:
            value = trial.figure(f"{part.model} {figure_of(bound)}")
            if value is not None and (value < least if bound.of_each else value > bound.limit):
                found.append(f"{part.model} {bound.text} ({value:.3g})")
    errors = ((part.model, trial.figure(f"{part.model} error_rate")) for part in parts)
    return found or [f"{model} error_rate ({rate:.3g})" for model, rate in errors if rate]
