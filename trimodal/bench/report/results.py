"""Makes the whole report of load runs: the same for every kind of work."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from trimodal.bench.load.records import METRICS, OK, Record
from trimodal.bench.load.rounds import Result
from trimodal.bench.load.slo import Slo
from trimodal.bench.report.tables import (
    NAMES,
    Unit,
    client_table,
    cost_table,
    detail_tables,
    error_table,
    main_table,
    measured,
    number,
    percent,
    rate_table,
    ratio_table,
    server_table,
    slo_table,
    value_of,
)
from trimodal.report.console import print_table
from trimodal.report.plots import bars, cdf, lines
from trimodal.report.values import Figure, Report, Section, Table

_MOST_ROWS = 120  # of a timeline
_SATURATED = 0.85
_LATE_MS = 10.0


def doubts(results: Sequence[Result]) -> list[str]:
    """Says what makes figures doubtful: this client was the limit, too much was left out, a run was cut."""
    told = []
    for result, one in measured(results):
        where = f"{result.case.name}, {result.side}"
        if one.stopped:
            told.append(
                f"{where}: the run ended early ({one.stopped}); what was measured until then is shown."
            )
        if one.cpu_share > _SATURATED:
            told.append(
                f"{where}: this client used {one.cpu_share:.0%} of a core: it may be what was measured. "
                "Run it on another machine, or with less load."
            )
        if one.send_lag_ms > _LATE_MS:
            told.append(
                f"{where}: 1 % of the requests went out more than {one.send_lag_ms:.0f} ms after they were "
                "due; the times hold that wait."
            )
        if one.unsent:
            told.append(
                f"{where}: {one.unsent} requests were not sent, as --max-in-flight were under way; they "
                "count as errors."
            )
        if not one.ok:
            told.append(f"{where}: no request was answered.")
    return told


def print_tables(title: str, unit: Unit, results: Sequence[Result], slo: Slo, console: Console) -> None:
    """Prints what a terminal is wide enough for."""
    for table in _present(
        main_table(title, unit, results, slo),
        ratio_table(unit, results),
        slo_table(results),
        server_table(results),
        cost_table(unit, results),
        error_table(results),
    ):
        print_table(table, console)


def _present(*tables: Table | None) -> list[Table]:
    return [table for table in tables if table]


def report(
    title: str,
    unit: Unit,
    results: Sequence[Result],
    slo: Slo,
    facts: Sequence[tuple[str, str]],
) -> Report:
    """The whole report of a bench."""
    rates = (rate_table(unit, results), ratio_table(unit, results), server_table(results))
    sections = [
        Section(
            "Results",
            "",
            _present(main_table("By case", unit, results, slo), slo_table(results)),
            _overview(unit, results),
            doubts(results),
        ),
        Section(
            "Latency",
            "Percentiles are of answered requests, with the range that holds the true one with 95 % "
            "confidence (block bootstrap over requests); “?” where so few requests tell of no bound. Times "
            "count from when a request was due, so a server or a client that falls behind makes them longer.",
            detail_tables(unit, results),
            _distributions(unit, results),
        ),
        Section("Rates", "", _present(*rates, cost_table(unit, results), error_table(results))),
        Section("Timeline", "", [], _timelines(unit, results)),
        Section(
            "This client",
            "What the load generator itself did: how much of a core it used, how late its event loop ran, "
            "and how long after they were due requests were sent.",
            _present(client_table(results)),
        ),
    ]
    return Report(title, _headline(unit, results, slo), sections, facts)


def _headline(unit: Unit, results: Sequence[Result], slo: Slo) -> str:
    found = [pair for pair in measured(results) if pair[0].side == results[0].side and pair[1].ok]
    if not found:
        return "No request was answered."
    if slo.of_requests:
        result, best = max(found, key=lambda pair: pair[1].goodput or 0.0)
        kept = " and ".join(bound.text for bound in slo.of_requests)
        return (
            f"Best goodput: {number(best.goodput)} requests/s that keep {kept}, with {result.case.name} "
            f"({percent(best.good_share)} of the requests were good)."
        )
    result, best = max(found, key=lambda pair: unit.of(pair[1]))
    return f"Most {unit.name}: {number(unit.of(best))} with {result.case.name}."


def _overview(unit: Unit, results: Sequence[Result]) -> list[Figure]:
    """Latency against throughput, where there is more than one case."""
    metric = unit.metrics[0]
    points: dict[str, list[tuple[float, float]]] = {}
    labels: dict[str, list[str]] = {}
    for result, one in measured(results):
        for label in ("p50", "p99"):
            value = value_of(one, metric, label)
            if value is not None:
                name = f"{result.side} {label}"
                points.setdefault(name, []).append((unit.of(one), value))
                labels.setdefault(name, []).append(f"{result.case.size:g}" if label == "p50" else "")
    if not any(len(some) > 1 for some in points.values()):
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
    good: dict[str, list[tuple[float, float]]] = {}
    for result, one in measured(results):
        if one.goodput is not None:
            good.setdefault(result.side, []).append((result.case.size, one.goodput))
    if good:
        caption = "Requests a second that keep every objective."
        figures.append(
            lines("Goodput", good, x="clients or requests/s", y="good requests/s", caption=caption)
        )
    return figures


def _values(result: Result, metric: str) -> list[float]:
    records = (one for run in result.runs for one in run.counted if one.outcome == OK)
    return [1e3 * value for record in records for value in METRICS[metric](record)]


def _distributions(unit: Unit, results: Sequence[Result]) -> list[Figure]:
    sides = len({result.side for result in results}) > 1
    figures = []
    for metric in unit.metrics:
        series = {
            f"{result.case.name}, {result.side}" if sides else result.case.name: _values(result, metric)
            for result in results
        }
        if any(series.values()):
            figures.append(cdf(NAMES[metric], series, caption=_CAPTIONS.get(metric, "")))
    return figures


_CAPTIONS = {
    "ttft": "Time to first text, from when the request was due.",
    "itl": "Every gap between two pieces of an answer.",
    "tpot": "Mean time of a token after the first, one value for each answer.",
    "latency": "From when the request was due to its end.",
    "lag": "From the end of a word in the audio until its client had it.",
}


def _timelines(unit: Unit, results: Sequence[Result]) -> list[Figure]:
    """Of each case's first round: when its requests waited and when they were answered."""
    figures = []
    for result in results[:6]:
        records = sorted(result.runs[0].counted, key=lambda record: record.due)
        shown = records[:: max(1, -(-len(records) // _MOST_ROWS))]
        rows = [(str(record.number), _stages(record, bool(unit.metrics[1:]))) for record in shown]
        if rows:
            kinds = ("not sent yet", "until the first piece", "pieces", "waiting", "failed")
            figures.append(
                bars(
                    f"{result.case.name}, {result.side}",
                    rows,
                    x="seconds",
                    kinds=kinds,
                    caption=f"{len(shown)} of {len(records)} requests, a line for each.",
                )
            )
    return figures


def _stages(record: Record, streams: bool) -> list[tuple[float, float, str]]:
    stages = []
    if record.sent - record.due > 1e-3:
        stages.append((record.due, record.sent, "not sent yet"))
    if record.outcome != OK:
        return [*stages, (record.sent, max(record.ended, record.sent + 1e-3), "failed")]
    if not streams or not record.pieces:
        return [*stages, (record.sent, record.ended, "waiting")]
    first = record.pieces[0]
    return [*stages, (record.sent, first, "until the first piece"), (first, record.ended, "pieces")]
