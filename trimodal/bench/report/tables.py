"""Makes the tables of load runs: the same for every kind of work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from trimodal.bench.load.generator import LoadRun
from trimodal.bench.load.records import METRICS, OK
from trimodal.bench.load.rounds import Result
from trimodal.bench.load.slo import Slo
from trimodal.bench.load.statistics import Estimate, Rates, Summary, Verdict
from trimodal.report.values import Table

NAMES: Mapping[str, str] = {
    "latency": "latency",
    "ttft": "TTFT",
    "itl": "ITL",
    "tpot": "TPOT",
    "lag": "lag of words",
}


@dataclass(frozen=True)
class Unit:
    """What a kind of work is counted in: the rate's name in a summary, what to call it, and its metrics."""

    rate: str
    name: str
    metrics: Sequence[str] = ("latency",)

    def of(self, rates: Any) -> float:
        return float(getattr(rates, self.rate))


TOKENS = Unit("output_tokens_per_s", "tokens/s", ("ttft", "itl", "tpot", "latency"))
IMAGES = Unit("items_per_s", "images/s")
TEXTS = Unit("items_per_s", "texts/s")
AUDIO = Unit("audio_s_per_s", "RTFx", ("lag", "ttft", "latency"))


def number(value: float | None) -> str:
    """Three significant digits, never an exponent; a dash for none."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def interval(estimate: Estimate | None) -> str:
    """Of a percentile, "412 (398 to 431)"; an open end where so few requests tell of none."""
    if estimate is None:
        return "-"
    if estimate.low is None and estimate.high is None:
        return f"{number(estimate.value)} (too few)"
    low, high = ("?" if end is None else number(end) for end in (estimate.low, estimate.high))
    return f"{number(estimate.value)} ({low} to {high})"


def names_of(result: Result) -> dict[str, str]:
    return {"case": result.case.name, "side": result.side}


def measured(results: Sequence[Result]) -> list[tuple[Result, Summary]]:
    return [(result, result.summary) for result in results if result.summary]


def goodput_table(title: str, results: Sequence[Result]) -> Table:
    """What was good of all that was sent, narrow enough for the longest names."""

    def cells(one: Summary) -> list[str]:
        times = [value_of(one, *which) for which in (("ttft", "p50"), ("ttft", "p99"), ("itl", "p99"))]
        good = number(one.goodput), percent(one.good_share)
        return [str(one.requests), str(one.ok), *good, *map(number, times), percent(one.error_rate)]

    columns = ["sent", "answered", "good/s", "good", "TTFT p50", "p99", "ITL p99", "errors"]
    note = "good: first text and all gaps within the tier's bounds. Times in ms, from when it was due."
    return by_case(title, columns, results, cells, note) or Table(title, columns, [])


def by_case(
    title: str,
    columns: Sequence[str],
    results: Sequence[Result],
    cells: Callable[[Summary], Sequence[str] | None],
    note: str = "",
) -> Table | None:
    """A row for each case and side of which there are cells; None: there is no such row or no column."""
    found = [(result, cells(one)) for result, one in measured(results)]
    rows = [[result.case.name, result.side, *shown] for result, shown in found if shown]
    return Table(title, ["case", "side", *columns], rows, note, names=2) if rows and columns else None


def main_table(title: str, unit: Unit, results: Sequence[Result], slo: Slo) -> Table | None:
    """A row for each case and side, as wide as a terminal."""
    labels = ("p50", "p99") if len(unit.metrics) > 1 else ("p50", "p90", "p95", "p99")
    times = [(metric, label) for metric in unit.metrics[:2] for label in labels]
    judged = any(one.goodput is not None for _, one in measured(results))
    goodput = ["good/s", "good"] if judged else []

    def cells(one: Summary) -> list[str]:
        good = [number(one.goodput), percent(one.good_share)] if goodput else []
        shown = [number(value_of(one, metric, label)) for metric, label in times]
        return [number(one.requests_per_s), number(unit.of(one)), *good, *shown, percent(one.error_rate)]

    heads = [f"{NAMES[metric]} {label}" for metric, label in times]
    note = "Times in ms"
    if slo.of_requests:
        kept = ", ".join(bound.text for bound in slo.of_requests)
        note += f"; good: requests that keep {kept}"
    return by_case(title, ["req/s", unit.name, *goodput, *heads, "errors"], results, cells, note + ".")


def value_of(summary: Summary, metric: str, label: str) -> float | None:
    found = summary.metrics.get(f"{metric}_ms")
    return found.get(label) if found else None


def percent(share: float | None) -> str:
    if share is None:
        return "-"
    return f"{share:.1%}" if 0 < share < 0.1 or 0.9 < share < 1 else f"{share:.0%}"


def detail_tables(unit: Unit, results: Sequence[Result]) -> list[Table]:
    """A table for each metric, with intervals."""
    columns = ["values", "mean", "std", "min", "p50", "p90", "p95", "p99", "max"]
    tables = (
        by_case(f"{NAMES[metric]}, ms", columns, results, partial(_described, metric))
        for metric in dict.fromkeys([*unit.metrics, "latency"])
    )
    return [table for table in tables if table]


def _described(metric: str, one: Summary) -> list[str] | None:
    found = one.metrics.get(f"{metric}_ms")
    if not found:
        return None
    percentiles = [interval(found.percentiles.get(label)) for label in ("p50", "p90", "p95", "p99")]
    ends = number(found.mean), number(found.std), number(found.least)
    return [str(found.count), *ends, *percentiles, number(found.most)]


def rate_table(unit: Unit, results: Sequence[Result]) -> Table | None:
    """Everything a second."""
    tokens = unit is TOKENS

    def cells(one: Summary) -> list[str]:
        shown = [f"{one.seconds:.1f}", str(one.requests), number(one.in_flight), number(one.requests_per_s)]
        if not tokens:
            return [*shown, number(unit.of(one))]
        speeds = one.output_tokens_per_s, one.input_tokens_per_s, one.tokens_per_s_per_user
        return [*shown, *map(number, speeds), percent(one.cached_share)]

    columns = ["window s", "requests", "in flight", "req/s"]
    columns += ["tokens/s out", "in", "per user", "cached"] if tokens else [unit.name]
    return by_case("Rates", columns, results, cells)


def slo_table(results: Sequence[Result]) -> Table | None:
    """What each objective came to, and whether that keeps it; None: none was given."""

    def cells(one: Summary) -> list[str]:
        return [f"{_came_to(verdict)} {'✓' if verdict.met else '✗'}" for verdict in one.verdicts]

    columns = [verdict.text for _, one in measured(results)[:1] for verdict in one.verdicts]
    note = "An objective of requests: the share that keeps it. One of the run: what it came to."
    return by_case("Objectives", columns, results, cells, note)


def _came_to(verdict: Verdict) -> str:
    return percent(verdict.value) if verdict.share else number(verdict.value)


def error_table(results: Sequence[Result]) -> Table | None:
    """Every outcome but "ok" and its sentences; None: there was none."""
    rows = []
    for result, one in measured(results):
        for outcome, count in one.outcomes.items():
            if outcome != OK:
                told = [text.partition(": ")[2] for text in one.errors if text.startswith(f"{outcome}:")]
                rows.append([outcome, result.case.name, result.side, "; ".join(told)[:200], str(count)])
    columns = ["outcome", "case", "side", "told", "requests"]
    return Table("Not answered", columns, rows, names=4) if rows else None


def cost_table(unit: Unit, results: Sequence[Result]) -> Table | None:
    """What it costs; None: no price was given."""
    heads = {
        "per_1000_requests": "1,000 requests",
        "per_million_output_tokens": "1 M output tokens",
        "per_million_tokens": "1 M tokens, in and out",
        "per_1000_items": "1,000 items",
        "per_audio_hour": "hour of audio",
    }
    hidden = {
        TOKENS: {"per_1000_items"},
        AUDIO: {"per_1000_items", "per_million_output_tokens", "per_million_tokens"},
    }.get(unit, set())
    costs = [vars(one.costs) for _, one in measured(results) if one.costs]
    shown = [name for name in heads if name not in hidden and any(cost[name] is not None for cost in costs)]

    def cells(one: Summary) -> list[str] | None:
        return [_money(vars(one.costs)[name]) for name in shown] if one.costs else None

    return by_case("Cost", [heads[name] for name in shown], results, cells)


def _money(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def server_table(results: Sequence[Result]) -> Table | None:
    """What the server counted, and words that were wrong; None: nothing was read."""
    names = list(dict.fromkeys(name for _, one in measured(results) for name in one.more))

    def cells(one: Summary) -> list[str] | None:
        return [f"{one.more[name]:.3g}" if name in one.more else "-" for name in names] if one.more else None

    return by_case("Counted besides", [name.replace("_", " ") for name in names], results, cells)


def ratio_table(unit: Unit, results: Sequence[Result]) -> Table | None:
    """The first side over each other one: medians of the ratios of neighbouring rounds. None: one side."""
    metrics = [metric for metric in unit.metrics if metric in ("ttft", "itl", "latency", "lag")]
    rows = []
    first: Result | None = None
    for result in results:
        if first is None or first.case is not result.case:
            first = result
            continue
        pairs = list(zip(first.runs, result.runs, strict=False))
        cells = [_ratio(pairs, lambda run: unit.of(Rates([run])))]
        cells += [_ratio(pairs, partial(_median, metric)) for metric in metrics]
        rows.append([result.case.name, f"{first.side} / {result.side}", str(len(pairs)), *cells])
    columns = ["case", "sides", "rounds", unit.name, *(f"{NAMES[metric]} p50" for metric in metrics)]
    note = "Medians of the ratios of neighbouring rounds: what drifts on the machine is in both."
    return Table("Side by side", columns, rows, note, names=2) if rows else None


def _ratio(pairs: Sequence[tuple[LoadRun, LoadRun]], value: Callable[[LoadRun], float]) -> str:
    ratios = [value(ours) / below for ours, theirs in pairs if (below := value(theirs))]
    return f"{median(ratios):.3f}" if ratios else "-"


def _median(metric: str, run: LoadRun) -> float:
    values = [value for record in run.counted if record.outcome == OK for value in METRICS[metric](record)]
    return median(values) if values else 0.0


def client_table(results: Sequence[Result]) -> Table | None:
    """What the load generator did itself."""

    def cells(one: Summary) -> list[str]:
        lags = number(one.loop_lag_ms), number(one.send_lag_ms)
        return [percent(one.cpu_share), *lags, str(one.unsent), str(one.unfinished)]

    columns = ["core used", "loop late p99 ms", "sent late p99 ms", "not sent", "cut off"]
    return by_case("Load generator", columns, results, cells)
