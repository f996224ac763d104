"""Says what is better: one objective, under the bounds of an SLO."""

from __future__ import annotations

from dataclasses import dataclass

from trimodal.bench.load.slo import ERROR_RATE, Bound, Slo, parse_slo
from trimodal.bench.load.statistics import Summary
from trimodal.bench.report import value_of
from trimodal.errors import SettingsError
from trimodal.tune.search import Round

# Rate → attribute of a run's summary, unit.
RATES = {
    "throughput": ("items_per_s", "/s"),
    "requests_per_s": ("requests_per_s", "requests/s"),
    "goodput": ("goodput", "/s"),
    "tokens_per_s": ("output_tokens_per_s", "tokens/s"),
    "rtfx": ("audio_s_per_s", ""),
}
# Share of requests that may be refused or fail, unless the SLO says, and for the others a bound on each of
# them need not hold.
_ERRORS, _MISSES = 0.01, 0.01


@dataclass(frozen=True)
class Objective:
    """What is maximised or minimised.

    Attributes:
        name: of RATES, or a statistic as p99_ms, p95_ttft_ms, mean_itl_ms.
        metric, statistic: that are named, as "ttft" and "p95"; empty for rates.
    """

    name: str
    maximise: bool
    metric: str = ""
    statistic: str = ""

    def value(self, summary: Summary) -> float | None:
        """The figure of a run; None: the run has none."""
        if self.metric:
            return value_of(summary, self.metric, self.statistic)
        found = getattr(summary, RATES[self.name][0])
        return None if found is None else float(found)

    @property
    def unit(self) -> str:
        return "ms" if self.metric else _SEARCHED.get(self.name) or RATES[self.name][1]


# What is no figure of one run, but the highest at which the SLO is kept: a load of a mix, streams at once.
LOAD, STREAMS = Objective("load", True), Objective("streams", True)
_SEARCHED = {LOAD.name: "times the mix", STREAMS.name: "at once"}


def parse_objective(maximize: str | None, minimize: str | None, slo: Slo) -> Objective:
    """Reads --maximize or --minimize. Raises: SettingsError naming what is known."""
    if maximize and minimize:
        raise SettingsError("--maximize and --minimize: one of them, please")
    if minimize is None:
        name = maximize or "throughput"
        if name == STREAMS.name:
            if not slo.bounds:
                raise SettingsError("--maximize streams needs a bound to keep: --slo 'p95_lag_ms<=1500'")
            return STREAMS
        if name not in RATES:
            raise SettingsError(f"--maximize {name}: known are {', '.join((*RATES, STREAMS.name))}")
        if name == "goodput" and not slo.of_requests:
            raise SettingsError("--maximize goodput needs a bound on each request: --slo 'ttft_ms<=500'")
        return Objective(name, True)
    try:
        bounds = parse_slo(f"{minimize}<=0").bounds
    except SettingsError:
        bounds = ()
    if len(bounds) != 1 or not bounds[0].statistic:
        known = "statistics as p99_ms, p95_ttft_ms, mean_itl_ms, p99_lag_ms"
        raise SettingsError(f"--minimize {minimize}: known are {known}")
    return Objective(minimize, False, bounds[0].metric, bounds[0].statistic)


def least_share(slo: Slo) -> float:
    """Which share of all requests has to keep a bound on each: 99 %, less where more errors are allowed."""
    return round(1 - max(_errors(slo), _MISSES), 9)


def _errors(slo: Slo) -> float:
    return next((bound.limit for bound in slo.bounds if bound.metric == ERROR_RATE), _ERRORS)


def violation(summary: Summary, slo: Slo, objective: Objective) -> float:
    """By what share the bounds are missed, summed; 0: all are met.

    Bounds on each request must hold for `least_share` of the requests, unless goodput, which counts those
    that keep them, is the objective. Where the SLO says nothing of errors, 1 % is allowed.
    """
    total = 0.0
    errors = _errors(slo)
    total += max(0.0, summary.error_rate - errors) / max(errors, 0.01)
    for bound, verdict in zip(slo.bounds, summary.verdicts, strict=True):
        if bound.metric == ERROR_RATE:
            continue
        if verdict.value is None:
            total += 1.0
        elif bound.of_each:
            if objective.name != "goodput":
                total += max(0.0, least_share(slo) - verdict.value)
        else:
            total += max(0.0, verdict.value / bound.limit - 1) if bound.limit else verdict.value
    return total


def judge(summary: Summary, slo: Slo, objective: Objective, value: float) -> Round:
    """What a run is worth, whose figure for the objective is `value`."""
    figures = {
        objective.name: value,
        "requests_per_s": summary.requests_per_s,
        "items_per_s": summary.items_per_s,
        "tokens_per_s": summary.output_tokens_per_s,
        "rtfx": summary.audio_s_per_s,
        "error_rate": summary.error_rate,
        "client_cpu_share": summary.cpu_share,
    }
    for name, found in summary.metrics.items():
        figures |= {label(name, statistic): one for statistic, one in found.percentiles.items()}
    for bound, verdict in zip(slo.bounds, summary.verdicts, strict=True):
        if verdict.value is not None:
            figures[figure_of(bound)] = verdict.value
    return Round(value if objective.maximise else -value, violation(summary, slo, objective), figures)


def figure_of(bound: Bound) -> str:
    """The name of the figure that a bound is on: `p99_ms`, or `kept ttft_ms<=500` for a share of requests."""
    return f"kept {bound.text}" if bound.of_each else bound.text.partition("<=")[0]


def label(metric: str, statistic: str) -> str:
    """`latency_ms`, `p99` → `p99_ms`; `ttft_ms` → `p99_ttft_ms`."""
    return f"{statistic}_ms" if metric == "latency_ms" else f"{statistic}_{metric}"
