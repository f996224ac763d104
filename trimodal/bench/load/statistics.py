"""Sums a run up: rates, distributions with confidence intervals, goodput, errors, cost.

Percentiles are nearest-rank, of answered requests. Their 95 % intervals come from a moving-block bootstrap:
blocks of requests that followed one another are drawn, so that neither a queue, in which neighbours wait
alike, nor the many gaps of one answer make them look narrower than they are. Where so few requests were
answered that the true percentile may well lie beyond the largest of them, there is no upper bound.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimodal.bench.load.generator import LoadRun
from trimodal.bench.load.records import CANCELLED, METRICS, OK, UNSENT, Record
from trimodal.bench.load.slo import ERROR_RATE, NO_SLO, Bound, Slo

PERCENTS = (50.0, 90.0, 95.0, 99.0)
CONFIDENCE = 0.95
_RESAMPLES = 400
_MOST_WORK = 40_000_000  # values looked at by the resamples of one metric


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95 % interval; None: no bound can be told from so few."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Distribution:
    """Values of one metric, in milliseconds. `percentiles`: "p50" → its estimate."""

    count: int
    mean: float
    std: float
    least: float
    most: float
    percentiles: Mapping[str, Estimate]

    def get(self, statistic: str) -> float | None:
        """Returns "mean", "max" or one of the percentiles; None: it was not computed."""
        if statistic in ("mean", "max"):
            return self.mean if statistic == "mean" else self.most
        found = self.percentiles.get(statistic)
        return found.value if found else None


@dataclass(frozen=True)
class Verdict:
    """An objective, what the run came to, and whether that keeps it. `share`: that is a share, else ms."""

    text: str
    value: float | None
    met: bool
    share: bool = False


@dataclass(frozen=True)
class Costs:
    """What the machine costs for so much; None: nothing of that kind was made."""

    per_1000_requests: float | None
    per_million_output_tokens: float | None
    per_million_tokens: float | None
    per_1000_items: float | None
    per_audio_hour: float | None


@dataclass(frozen=True)
class Summary:
    """A run. Rates are per second of its window; a request counts for the part of it inside.

    Attributes:
        requests: that were due in the window, and `ok` of them answered.
        outcomes: outcome → requests; `errors`: sentence → requests, the most frequent ones.
        error_rate: share of requests, without those cancelled on purpose, that were not answered; those are
            in it for which the generator had no room, `unsent`.
        in_flight: requests under way, on average.
        audio_s_per_s: seconds of audio answered a second: RTFx.
        tokens_per_s_per_user: of one answer after its first token, the median of all.
        goodput: good requests a second; `good_share`: of all requests. None: no objective for requests.
        send_lag_ms: sent − due, p99: what this client was late.
        cached_share: of the input tokens, that the prefix cache spared.
    """

    seconds: float
    requests: int
    ok: int
    outcomes: Mapping[str, int]
    errors: Mapping[str, int]
    error_rate: float
    unsent: int
    unfinished: int
    in_flight: float
    requests_per_s: float
    items_per_s: float
    input_tokens_per_s: float
    output_tokens_per_s: float
    audio_s_per_s: float
    tokens_per_s_per_user: float | None
    cached_share: float | None
    goodput: float | None
    good_share: float | None
    metrics: Mapping[str, Distribution]
    verdicts: tuple[Verdict, ...]
    costs: Costs | None
    send_lag_ms: float
    loop_lag_ms: float
    cpu_share: float
    stopped: str = ""
    more: Mapping[str, float] = field(default_factory=dict)  # what the server counted meanwhile

    def plain(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)


def summarise(
    runs: LoadRun | Sequence[LoadRun],
    slo: Slo = NO_SLO,
    *,
    cost_per_hour: float = 0.0,
    more: Mapping[str, float] | None = None,
) -> Summary:
    """Sums up the window of a run, or those of several rounds of the same.

    Args:
        cost_per_hour: of the machine, in whatever money; 0: no costs.
        more: figures of the server for the report.
    """
    rounds = [runs] if isinstance(runs, LoadRun) else list(runs)
    counted = [one for run in rounds for one in sorted(run.counted, key=lambda record: record.due)]
    answered = [record for record in counted if record.outcome == OK]
    outcomes = Counter(record.outcome for record in counted)
    judged = max(1, len(counted) - outcomes[CANCELLED])
    error_rate = (len(counted) - outcomes[OK] - outcomes[CANCELLED]) / judged
    seconds = sum(run.seconds for run in rounds)
    good = sum(map(slo.good, counted)) if slo.of_requests else None
    rates = Rates(rounds, slo)
    metrics = _metrics(answered, slo)
    tpot = metrics["tpot_ms"].get("p50") if "tpot_ms" in metrics else None
    return Summary(
        seconds=seconds,
        requests=len(counted),
        ok=outcomes[OK],
        outcomes=dict(outcomes),
        errors=_errors(counted),
        error_rate=error_rate,
        unsent=outcomes[UNSENT],
        unfinished=sum(run.unfinished for run in rounds),
        in_flight=rates.in_flight,
        requests_per_s=rates.requests_per_s,
        items_per_s=rates.items_per_s,
        input_tokens_per_s=rates.input_tokens_per_s,
        output_tokens_per_s=rates.output_tokens_per_s,
        audio_s_per_s=rates.audio_s_per_s,
        tokens_per_s_per_user=1e3 / tpot if tpot else None,
        cached_share=_cached_share(answered),
        goodput=None if good is None else rates.good_per_s,
        good_share=None if good is None else good / judged,
        metrics=metrics,
        verdicts=tuple(_verdict(bound, metrics, error_rate, answered) for bound in slo.bounds),
        costs=_costs(cost_per_hour, rates) if cost_per_hour else None,
        send_lag_ms=_send_lag_ms(counted),
        loop_lag_ms=1e3 * max(run.loop_lag for run in rounds),
        cpu_share=max(run.cpu_share for run in rounds),
        stopped=next((run.stopped for run in rounds if run.stopped), ""),
        more=dict(more or {}),
    )


def _errors(records: Sequence[Record]) -> dict[str, int]:
    """The most frequent sentences of what was not answered."""
    failed = (record for record in records if record.outcome not in (OK, CANCELLED))
    return dict(Counter(f"{record.outcome}: {record.error}" for record in failed).most_common(5))


def _metrics(answered: Sequence[Record], slo: Slo) -> dict[str, Distribution]:
    """Distributions in milliseconds, also with the percentiles that the objectives bound."""
    bounded = {bound.statistic for bound in slo.of_run} - {"", "mean", "max"}
    percents = sorted({*PERCENTS, *(float(statistic[1:]) for statistic in bounded)})
    found = {
        name: distribution([[1e3 * one for one in values(record)] for record in answered], percents)
        for name, values in METRICS.items()
    }
    return {f"{name}_ms": one for name, one in found.items() if one}


def _cached_share(answered: Sequence[Record]) -> float | None:
    given = sum(record.input_tokens for record in answered)
    return sum(record.cached_tokens for record in answered) / given if given else None


def _send_lag_ms(counted: Sequence[Record]) -> float:
    lags = np.sort([one.sent - one.due for one in counted])
    return 1e3 * nearest_rank(lags, 99.0) if len(lags) else 0.0


class Rates:
    """What was answered a second of the windows: of each request the part of its time that lies inside."""

    def __init__(self, runs: Sequence[LoadRun], slo: Slo = NO_SLO) -> None:
        self.requests_per_s = self.items_per_s = self.input_tokens_per_s = self.output_tokens_per_s = 0.0
        self.audio_s_per_s = self.in_flight = self.good_per_s = 0.0
        for run in runs:
            self._add(run, slo)
        seconds = sum(run.seconds for run in runs)
        for name in vars(self):
            setattr(self, name, getattr(self, name) / seconds)

    def _add(self, run: LoadRun, slo: Slo) -> None:
        begin, end = run.began, run.began + run.seconds
        for record in run.records:
            if record.outcome == UNSENT:
                continue
            inside = max(0.0, min(record.ended, end) - max(record.sent, begin))
            self.in_flight += inside
            if record.outcome != OK:
                continue
            took = record.ended - record.sent
            share = inside / took if took > 0 else float(begin <= record.sent <= end)
            self.requests_per_s += share
            self.good_per_s += share * slo.good(record)
            self.items_per_s += share * record.items
            self.input_tokens_per_s += share * record.input_tokens
            self.audio_s_per_s += share * record.audio_s
            if record.pieces and record.output_tokens:
                told = sum(begin <= at <= end for at in record.pieces)
                self.output_tokens_per_s += record.output_tokens * told / len(record.pieces)


def nearest_rank(ordered: NDArray[np.float64], percent: float) -> float:
    """Returns the smallest value that at least `percent` of all do not exceed."""
    rank = math.ceil(round(percent / 100 * len(ordered), 6))
    return float(ordered[max(0, rank - 1)])


def distribution(
    values: Sequence[Sequence[float]], percents: Sequence[float] = PERCENTS
) -> Distribution | None:
    """Describes values; None without any.

    Args:
        values: those of each request, in the order in which the requests were due.
    """
    groups = [np.asarray(one, np.float64) for one in values if len(one)]
    if not groups:
        return None
    flat = np.concatenate(groups)
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    owner = np.repeat(np.arange(len(groups)), [len(one) for one in groups])[order]
    bounds = _bootstrap(ordered, owner, len(groups), percents)
    found = {}
    for percent, (low, high) in zip(percents, bounds, strict=True):
        share, count = percent / 100, len(groups)
        # Chance that none of so many requests lies beyond (or below) the percentile.
        high_known = share**count <= (1 - CONFIDENCE) / 2
        low_known = (1 - share) ** count <= (1 - CONFIDENCE) / 2
        found[f"p{percent:g}"] = Estimate(
            nearest_rank(ordered, percent), low if low_known else None, high if high_known else None
        )
    return Distribution(
        count=len(flat),
        mean=float(flat.mean()),
        std=float(flat.std()),
        least=float(ordered[0]),
        most=float(ordered[-1]),
        percentiles=found,
    )


def _bootstrap(
    ordered: NDArray[np.float64], owner: NDArray[np.int64], requests: int, percents: Sequence[float]
) -> list[tuple[float, float]]:
    """Intervals of percentiles.

    Args:
        ordered: all values, rising; `owner`: the request of each.
    """
    rng = np.random.default_rng(0)
    block = max(1, round(requests ** (1 / 3)))
    blocks = -(-requests // block)
    resamples = max(50, min(_RESAMPLES, _MOST_WORK // len(ordered)))
    drawn = np.empty((resamples, len(percents)))
    for index in range(resamples):
        begins = rng.integers(0, requests, blocks)
        # Blocks go round at the end, so that the last requests are drawn as often as all others.
        chosen = ((begins[:, None] + np.arange(block)) % requests).ravel()[:requests]
        weights = np.bincount(chosen, minlength=requests)
        reached = np.cumsum(weights[owner])
        total = reached[-1]
        if not total:
            drawn[index] = ordered[-1]
            continue
        ranks = [max(1, math.ceil(round(percent / 100 * total, 6))) for percent in percents]
        drawn[index] = ordered[np.searchsorted(reached, ranks)]
    edge = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(drawn, [edge, 100 - edge], axis=0)
    return [(float(one), float(other)) for one, other in zip(low, high, strict=True)]


def _verdict(
    bound: Bound, metrics: Mapping[str, Distribution], error_rate: float, answered: Sequence[Record]
) -> Verdict:
    """Of a bound on requests: the share that keeps it, and it is met when all do."""
    if bound.metric == ERROR_RATE:
        return Verdict(bound.text, error_rate, error_rate <= bound.limit, True)
    if bound.of_each:
        share = sum(map(bound.met_by, answered)) / len(answered) if answered else 0.0
        return Verdict(bound.text, share, share == 1.0, True)
    found = metrics.get(f"{bound.metric}_ms")
    value = found.get(bound.statistic) if found else None
    return Verdict(bound.text, value, value is not None and value <= bound.limit)


def _costs(per_hour: float, rates: Rates) -> Costs:
    def cost(amount: float, rate: float) -> float | None:
        return per_hour / 3600 / rate * amount if rate else None

    tokens = rates.input_tokens_per_s + rates.output_tokens_per_s
    return Costs(
        per_1000_requests=cost(1000, rates.requests_per_s),
        per_million_output_tokens=cost(1e6, rates.output_tokens_per_s),
        per_million_tokens=cost(1e6, tokens) if rates.output_tokens_per_s else None,
        per_1000_items=cost(1000, rates.items_per_s),
        per_audio_hour=cost(3600, rates.audio_s_per_s),
    )
