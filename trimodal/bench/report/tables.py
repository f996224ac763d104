"""Makes the tables of load runs: the same for every kind of work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from trimodal.bench.load.generator import Run
from trimodal.bench.load.records import METRICS, OK
from trimodal.bench.load.rounds import Result
from trimodal.bench.load.slo import Slo
from trimodal.bench.load.statistics import Distribution, Estimate, Rates, Summary, Verdict
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
    low = number(estimate.low) if estimate.low is not None else "?"
    return (
        f"{number(estimate.value)} ({low} to {number(estimate.high) if estimate.high is not None else '?'})"
    )


def names_of(result: Result) -> dict[str, str]:
    return {"case": result.case.name, "side": result.side}


def measured(results: Sequence[Result]) -> list[tuple[Result, Summary]]:
    return [(result, result.summary) for result in results if result.summary]


def main_table(title: str, unit: Unit, results: Sequence[Result], slo: Slo) -> Table:
    """A row for each case and side, as wide as a terminal."""
    goodput = ["good/s", "good"] if slo.of_requests else []
    heads = [f"{NAMES[metric]} {label}" for metric in unit.metrics[:2] for label in ("p50", "p99")]
    if len(unit.metrics) == 1:
        heads = [f"{NAMES[unit.metrics[0]]} {label}" for label in ("p50", "p90", "p95", "p99")]
    rows = []
    for result, one in measured(results):
        chosen = (
            [(unit.metrics[0], label) for label in ("p50", "p90", "p95", "p99")]
            if len(unit.metrics) == 1
            else [(metric, label) for metric in unit.metrics[:2] for label in ("p50", "p99")]
        )
        rate = unit.of(one)
        rows.append(
            [
                result.case.name,
                result.side,
                number(one.requests_per_s),
                number(rate),
                *([number(one.goodput), percent(one.good_share)] if goodput else []),
                *(number(value_of(one, metric, label)) for metric, label in chosen),
                percent(one.error_rate),
            ]
        )
    columns = ["case", "side", "req/s", unit.name, *goodput, *heads, "errors"]
    note = "Times in ms"
    if slo.of_requests:
        kept = ", ".join(bound.text for bound in slo.of_requests)
        note += f"; good: requests that keep {kept}"
    return Table(title, columns, rows, note + ".", names=2)


def value_of(summary: Summary, metric: str, label: str) -> float | None:
    found = summary.metrics.get(f"{metric}_ms")
    return found.get(label) if found else None


def percent(share: float | None) -> str:
    if share is None:
        return "-"
    return f"{share:.1%}" if 0 < share < 0.1 or 0.9 < share < 1 else f"{share:.0%}"


def detail_tables(unit: Unit, results: Sequence[Result]) -> list[Table]:
    """A table for each metric, with intervals."""
    tables = []
    for metric in dict.fromkeys([*unit.metrics, "latency"]):
        rows = [
            [result.case.name, result.side, *_described(found)]
            for result, one in measured(results)
            if (found := one.metrics.get(f"{metric}_ms"))
        ]
        if rows:
            columns = ["case", "side", "values", "mean", "std", "min", "p50", "p90", "p95", "p99", "max"]
            tables.append(Table(f"{NAMES[metric]}, ms", columns, rows, names=2))
    return tables


def _described(found: Distribution) -> list[str]:
    percentiles = [interval(found.percentiles.get(label)) for label in ("p50", "p90", "p95", "p99")]
    ends = number(found.mean), number(found.std), number(found.least)
    return [str(found.count), *ends, *percentiles, number(found.most)]


def rate_table(unit: Unit, results: Sequence[Result]) -> Table:
    """Everything a second."""
    tokens = unit is TOKENS
    columns = ["case", "side", "window s", "requests", "in flight", "req/s"]
    columns += ["tokens/s out", "in", "per user", "cached"] if tokens else [unit.name]
    rows = []
    for result, one in measured(results):
        cells = [f"{one.seconds:.1f}", str(one.requests), number(one.in_flight), number(one.requests_per_s)]
        if tokens:
            speeds = one.output_tokens_per_s, one.input_tokens_per_s, one.tokens_per_s_per_user
            cells += [*map(number, speeds), percent(one.cached_share)]
        else:
            cells.append(number(unit.of(one)))
        rows.append([result.case.name, result.side, *cells])
    return Table("Rates", columns, rows, names=2)


def slo_table(results: Sequence[Result]) -> Table | None:
    """What each objective came to, and whether that keeps it; None: none was given."""
    columns: list[str] = []
    rows = []
    for result, one in measured(results):
        columns = [verdict.text for verdict in one.verdicts]
        cells = [f"{_came_to(verdict)} {'✓' if verdict.met else '✗'}" for verdict in one.verdicts]
        rows.append([result.case.name, result.side, *cells])
    note = "An objective of requests: the share that keeps it. One of the run: what it came to."
    return Table("Objectives", ["case", "side", *columns], rows, note, names=2) if columns else None


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
    costs = [(result, one.costs) for result, one in measured(results) if one.costs]
    if unit in (TOKENS, AUDIO):
        heads.pop("per_1000_items")
    if unit is AUDIO:
        heads.pop("per_million_output_tokens")
        heads.pop("per_million_tokens")
    shown = [name for name in heads if any(getattr(cost, name) is not None for _, cost in costs)]
    rows = [
        [result.case.name, result.side, *(_money(getattr(cost, name)) for name in shown)]
        for result, cost in costs
    ]
    columns = ["case", "side", *(heads[name] for name in shown)]
    return Table("Cost", columns, rows, names=2) if rows else None


def _money(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def server_table(results: Sequence[Result]) -> Table | None:
    """What the server counted; None: nothing was read."""
    names = list(dict.fromkeys(name for _, one in measured(results) for name in one.more))
    rows = [
        [result.case.name, *(f"{one.more[name]:.3g}" if name in one.more else "-" for name in names)]
        for result, one in measured(results)
        if one.more
    ]
    return (
        Table("Counted by the server", ["case", *(_spoken(name) for name in names)], rows) if rows else None
    )


def _spoken(name: str) -> str:
    return name.replace("_", " ")


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


def _ratio(pairs: Sequence[tuple[Run, Run]], value: Callable[[Run], float]) -> str:
    ratios = [value(ours) / below for ours, theirs in pairs if (below := value(theirs))]
    return f"{median(ratios):.3f}" if ratios else "-"


def _median(metric: str, run: Run) -> float:
    values = [value for record in run.counted if record.outcome == OK for value in METRICS[metric](record)]
    return median(values) if values else 0.0


def client_table(results: Sequence[Result]) -> Table:
    columns = ["case", "side", "core used", "loop late p99 ms", "sent late p99 ms", "not sent", "cut off"]
    rows = [
        [
            result.case.name,
            result.side,
            percent(one.cpu_share),
            number(one.loop_lag_ms),
            number(one.send_lag_ms),
            str(one.unsent),
            str(one.unfinished),
        ]
        for result, one in measured(results)
    ]
    return Table("Load generator", columns, rows, names=2)
