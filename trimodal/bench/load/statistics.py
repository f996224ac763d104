"""Sums a run up: rates, distributions, goodput, errors. Percentiles are nearest-rank of what was answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from trimodal.bench.load.generator import LoadRun
from trimodal.bench.load.records import METRICS, OK, UNSENT, Record
from trimodal.bench.load.slo import ERROR_RATE, NO_SLO, Bound, Slo
from trimodal.client.timing import percentile

PERCENTS = (50.0, 90.0, 95.0, 99.0)


@dataclass(frozen=True)
class Distribution:
    """Values of one metric, in milliseconds. `percentiles`: "p50" → its value."""

    count: int
    mean: float
    least: float
    most: float
    percentiles: Mapping[str, float]

    def get(self, statistic: str) -> float | None:
        """Returns "mean", "max" or one of the percentiles; None: it was not computed."""
        if statistic in ("mean", "max"):
            return self.mean if statistic == "mean" else self.most
        return self.percentiles.get(statistic)


@dataclass(frozen=True)
class Verdict:
    """An objective, what the run came to, and whether that keeps it. `share`: that is a share, else ms."""

    text: str
    value: float | None
    met: bool
    share: bool = False


@dataclass(frozen=True)
class Summary:
    """A run. Rates are per second of its window; a request counts for the part of it inside.

    Attributes:
        requests: that were due in the window, and `ok` of them answered.
        outcomes: outcome → requests; `errors`: sentence → requests, the most frequent ones.
        error_rate: share of requests that were not answered, or for which the generator had no room.
        in_flight: requests under way, on average.
        audio_s_per_s: seconds of audio answered a second: RTFx.
        cached_share: of the input tokens, that the prefix cache spared.
        goodput: good requests a second; `good_share`: of all requests. None: no objective for requests.
        send_lag_ms: sent − due, p99: what this client was late.
        word_error_rate: of what was heard in speech; None: there was none.
    """

    seconds: float
    requests: int
    ok: int
    outcomes: Mapping[str, int]
    errors: Mapping[str, int]
    error_rate: float
    in_flight: float
    requests_per_s: float
    items_per_s: float
    input_tokens_per_s: float
    output_tokens_per_s: float
    audio_s_per_s: float
    cached_share: float | None
    goodput: float | None
    good_share: float | None
    metrics: Mapping[str, Distribution]
    verdicts: tuple[Verdict, ...]
    send_lag_ms: float
    loop_lag_ms: float
    cpu_share: float
    stopped: str = ""
    word_error_rate: float | None = None


def summarise(
    runs: LoadRun | Sequence[LoadRun], slo: Slo = NO_SLO, statistics: Collection[str] = ()
) -> Summary:
    """Sums up the window of a run, or those of several rounds of the same.

    Args:
        statistics: to compute beside the usual ones and those of the objectives, as "p77".
    """
    rounds = [runs] if isinstance(runs, LoadRun) else list(runs)
    counted = [one for run in rounds for one in run.counted]
    answered = [record for record in counted if record.outcome == OK]
    outcomes = Counter(record.outcome for record in counted)
    judged = max(1, len(counted))
    error_rate = (len(counted) - outcomes[OK]) / judged
    good = sum(map(slo.good, counted)) if slo.of_requests else None
    metrics = _metrics(answered, {*statistics, *(bound.statistic for bound in slo.of_run)})
    rates = _rates(rounds, slo)
    if good is None:
        rates["goodput"] = None
    return Summary(
        seconds=sum(run.seconds for run in rounds),
        requests=len(counted),
        ok=outcomes[OK],
        outcomes=dict(outcomes),
        errors=_errors(counted),
        error_rate=error_rate,
        **rates,
        cached_share=_cached_share(answered),
        good_share=None if good is None else good / judged,
        metrics=metrics,
        verdicts=tuple(_verdict(bound, metrics, error_rate, counted) for bound in slo.bounds),
        send_lag_ms=1e3 * (percentile([one.sent - one.due for one in counted], 99.0) or 0.0),
        loop_lag_ms=1e3 * max(run.loop_lag for run in rounds),
        cpu_share=max(run.cpu_share for run in rounds),
        stopped=next((run.stopped for run in rounds if run.stopped), ""),
    )


def _errors(records: Sequence[Record]) -> dict[str, int]:
    """The most frequent sentences of what was not answered."""
    failed = (record for record in records if record.outcome != OK)
    return dict(Counter(f"{record.outcome}: {record.error}" for record in failed).most_common(5))


def _metrics(answered: Sequence[Record], statistics: Collection[str]) -> dict[str, Distribution]:
    """Distributions in milliseconds, also with the percentiles among these statistics."""
    percents = sorted({*PERCENTS, *(float(one[1:]) for one in statistics if one.startswith("p"))})
    found = {
        name: distribution([1e3 * one for record in answered for one in values(record)], percents)
        for name, values in METRICS.items()
    }
    return {f"{name}_ms": one for name, one in found.items() if one}


def _cached_share(answered: Sequence[Record]) -> float | None:
    given = sum(record.input_tokens for record in answered)
    return sum(record.cached_tokens for record in answered) / given if given else None


def _rates(runs: Sequence[LoadRun], slo: Slo) -> dict[str, Any]:
    """What was answered a second of the windows: of each request the part of its time that lies inside."""
    names = ("requests", "items", "input_tokens", "output_tokens", "audio_s")
    sums = {f"{name}_per_s": 0.0 for name in names} | {"in_flight": 0.0, "goodput": 0.0}
    for run in runs:
        begin, end = run.began, run.began + run.seconds
        for record in run.records:
            if record.outcome == UNSENT:
                continue
            inside = max(0.0, min(record.ended, end) - max(record.sent, begin))
            sums["in_flight"] += inside
            if record.outcome != OK:
                continue
            took = record.ended - record.sent
            share = inside / took if took > 0 else float(begin <= record.sent <= end)
            sums["requests_per_s"] += share
            sums["goodput"] += share * slo.good(record)
            sums["items_per_s"] += share * record.items
            sums["input_tokens_per_s"] += share * record.input_tokens
            sums["audio_s_per_s"] += share * record.audio_s
            if record.pieces and record.output_tokens:
                inside = sum(begin <= at <= end for at in record.pieces)
                sums["output_tokens_per_s"] += record.output_tokens * inside / len(record.pieces)
    seconds = sum(run.seconds for run in runs)
    return {name: value / seconds for name, value in sums.items()}


def distribution(values: Sequence[float], percents: Sequence[float] = PERCENTS) -> Distribution | None:
    """Describes values; None without any."""
    if not values:
        return None
    ordered = sorted(values)  # to sort it again takes next to no time
    return Distribution(
        count=len(ordered),
        mean=fmean(ordered),
        least=ordered[0],
        most=ordered[-1],
        percentiles={f"p{percent:g}": percentile(ordered, percent) or 0.0 for percent in percents},
    )


def _verdict(
    bound: Bound, metrics: Mapping[str, Distribution], error_rate: float, counted: Sequence[Record]
) -> Verdict:
    """Of a bound on requests: the share that is answered and keeps it, and it is met when all do.

    Where no answer has such a figure, as a lag of images, there is none, and it is not met.
    """
    if bound.metric == ERROR_RATE:
        return Verdict(bound.text, error_rate, error_rate <= bound.limit, True)
    if bound.of_each:
        answered = [record for record in counted if record.outcome == OK]
        if not counted or (answered and f"{bound.metric}_ms" not in metrics):
            return Verdict(bound.text, None, False, True)
        share = sum(map(bound.met_by, answered)) / len(counted)
        return Verdict(bound.text, share, share == 1.0, True)
    found = metrics.get(f"{bound.metric}_ms")
    value = found.get(bound.statistic) if found else None
    return Verdict(bound.text, value, value is not None and value <= bound.limit)
