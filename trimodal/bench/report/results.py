"""Makes the whole report of load runs: the same for every kind of work."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from trimodal.bench.load.records import METRICS, OK, UNSENT
from trimodal.bench.load.rounds import Result
from trimodal.bench.load.slo import Slo
from trimodal.bench.report.tables import (
    NAMES,
    Unit,
    detail_tables,
    error_table,
    main_table,
    ratio_table,
    slo_table,
    value_of,
)
from trimodal.report.console import print_table
from trimodal.report.plots import cdf, lines
from trimodal.report.values import Figure, Report, Section, Table

_SATURATED = 0.85
_LATE_MS = 10.0


def doubts(results: Sequence[Result]) -> list[str]:
    """Says what makes figures doubtful: this client was the limit, too much was left out, a run was cut."""
    found = []
    for result in results:
        one = result.summary
        unsent = one.outcomes.get(UNSENT, 0)
        sentences = [
            (one.stopped, f"the run ended early ({one.stopped}); what was measured until then is shown."),
            (
                one.cpu_share > _SATURATED,
                f"this client used {one.cpu_share:.0%} of a core: it may be what was measured. Run it on "
                "another machine, or with less load.",
            ),
            (
                one.send_lag_ms > _LATE_MS,
                f"1 % of the requests went out more than {one.send_lag_ms:.0f} ms after they were due; the "
                "times hold that wait.",
            ),
            (
                unsent,
                f"{unsent} requests were not sent, as --max-in-flight were under way; they count as errors.",
            ),
            (not one.ok, "no request was answered."),
        ]
        if not result.part:
            where = f"{result.case.name}, {result.side}"
            found += [f"{where}: {sentence}" for doubtful, sentence in sentences if doubtful]
    return found


def print_tables(title: str, unit: Unit, results: Sequence[Result], slo: Slo, console: Console) -> None:
    """Prints what a terminal is wide enough for, and what makes it doubtful."""
    for table in _tables(title, unit, results, slo):
        print_table(table, console)
    for sentence in doubts(results):
        console.print(sentence, markup=False, style="yellow")


def report(
    title: str, unit: Unit, results: Sequence[Result], slo: Slo, facts: Sequence[tuple[str, str]]
) -> Report:
    """The whole report of a bench."""
    tables, figures = _tables("By case", unit, results, slo), _overview(unit, results)
    sections = [
        Section("Results", "", tables, figures, doubts(results)),
        Section(
            "Latency",
            "Percentiles are of answered requests. Times count from when a request was due, so a server or "
            "a client that falls behind makes them longer.",
            detail_tables(unit, results),
            _distributions(unit, results),
        ),
    ]
    return Report(title, ", ".join(dict.fromkeys(one.case.name for one in results)), sections, facts)


def _tables(title: str, unit: Unit, results: Sequence[Result], slo: Slo) -> list[Table]:
    more = ratio_table(unit, results), slo_table(results), error_table(results)
    return [main_table(title, unit, results, slo), *(table for table in more if table)]


def _overview(unit: Unit, results: Sequence[Result]) -> list[Figure]:
    """Latency against throughput, and goodput over the load, where there are several cases."""
    metric = unit.metrics[0]
    points: dict[str, list[tuple[float, float]]] = {}
    labels: dict[str, list[str]] = {}
    good: dict[str, list[tuple[float, float]]] = {}
    for result in results:
        one = result.summary
        if one.goodput is not None:
            good.setdefault(result.label, []).append((result.case.size, one.goodput))
        for label in ("p50", "p99"):
            value = value_of(one, metric, label)
            if value is not None and not result.part:
                name = f"{result.side} {label}"
                points.setdefault(name, []).append((unit.of(one), value))
                labels.setdefault(name, []).append(f"{result.case.size:.3g}" if label == "p50" else "")
    if len({result.case.name for result in results}) < 2:
        return []
    figures = [
        lines(
            f"{NAMES[metric]} against throughput",
            points,
            x=unit.name,
            y=f"{NAMES[metric]}, ms",
            labels=labels,
            caption="A point for each case; the number beside it is its clients or its rate.",
        )
    ]
    if good:
        caption = "Requests a second that keep every objective."
        figures.append(
            lines("Goodput", good, x="clients or requests/s", y="good requests/s", caption=caption)
        )
    return figures


def _distributions(unit: Unit, results: Sequence[Result]) -> list[Figure]:
    sides = len({result.label for result in results}) > 1
    figures = []
    for metric in unit.metrics:
        series = {
            f"{result.case.name}, {result.label}" if sides else result.case.name: _values(result, metric)
            for result in results
        }
        if any(series.values()):
            figures.append(cdf(NAMES[metric], series))
    return figures


def _values(result: Result, metric: str) -> list[float]:
    records = (one for run in result.runs for one in run.counted if one.outcome == OK)
    return [1e3 * value for record in records for value in METRICS[metric](record)]
