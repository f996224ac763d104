"""Shows what a load test measured, the same for every kind of work: as tables, and as a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from pydantic_core import to_json
from rich.console import Console

from trimodal.bench.load.generator import Closed, LoadRun
from trimodal.bench.load.records import METRICS, OK, UNSENT
from trimodal.bench.load.rounds import Result
from trimodal.bench.load.slo import Slo
from trimodal.bench.load.statistics import Summary, summarise
from trimodal.errors import SettingsError
from trimodal.files import replace_file
from trimodal.report.console import Table, print_table

NAMES: Mapping[str, str] = {
    "latency": "latency",
    "ttft": "TTFT",
    "itl": "ITL",
    "tpot": "TPOT",
    "lag": "lag of words",
}
_SATURATED = 0.85
_LATE_MS = 10.0
_GROWN, _GROWN_SHARE = 5, 0.1  # requests under way, and of those that came
_CACHED = 0.3  # of the prompt tokens, more than of the first side's


@dataclass(frozen=True)
class Unit:
    """What a kind of work is counted in: the rate's name in a summary, what to call it, and its metrics."""

    rate: str
    name: str
    metrics: Sequence[str] = ("latency",)

    def of(self, summary: Summary) -> float:
        return float(getattr(summary, self.rate))


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


def percent(share: float | None) -> str:
    if share is None:
        return "-"
    return f"{share:.1%}" if 0 < share < 0.1 or 0.9 < share < 1 else f"{share:.0%}"


def names_of(result: Result) -> dict[str, str]:
    return {"case": result.case.name, "side": result.side, "part": result.part}


def value_of(summary: Summary, metric: str, label: str) -> float | None:
    found = summary.metrics.get(f"{metric}_ms")
    return found.get(label) if found else None


def by_case(
    title: str,
    columns: Sequence[str],
    results: Sequence[Result],
    cells: Callable[[Summary], Sequence[str]],
    note: str = "",
) -> Table:
    """A row for each case and side; where there is one side it has no column."""
    several = len({result.label for result in results}) > 1
    names = ["case", "side"][: 1 + several]
    rows = [[result.case.name, result.label][: 1 + several] + [*cells(result.summary)] for result in results]
    return Table(title, [*names, *columns], rows, note, names=len(names))


def main_table(title: str, unit: Unit, results: Sequence[Result], slo: Slo) -> Table:
    """Throughput, goodput, times and errors, as wide as a terminal."""
    alone = len(unit.metrics) == 1
    labels = ("p50", "p90", "p95", "p99") if alone else ("p50", "p99")
    times = [(metric, label) for metric in unit.metrics[:2] for label in labels]
    judged = any(one.summary.goodput is not None for one in results)
    heard = any(one.summary.word_error_rate is not None for one in results)

    def cells(one: Summary) -> list[str]:
        good = [number(one.goodput), percent(one.good_share)] if judged else []
        shown = [number(value_of(one, metric, label)) for metric, label in times]
        wrong = [percent(one.word_error_rate)] if heard else []
        return [
            number(one.requests_per_s), number(unit.of(one)), *good, *shown, *wrong, percent(one.error_rate)
        ]  # fmt: skip

    columns = ["req/s", unit.name, *(["good/s", "good"] if judged else [])]
    # One metric is named in the note: its name in every column was folded within the word.
    columns += [label if alone else f"{NAMES[metric]} {label}" for metric, label in times]
    columns += [*(["wrong words"] if heard else []), "errors"]
    note = f"{NAMES[unit.metrics[0]].capitalize()} in ms" if alone else "Times in ms"
    if slo.of_requests:
        kept = ", ".join(bound.text for bound in slo.of_requests)
        note += f"; good: requests that keep {kept}"
    if any(one.summary.ok < 100 for one in results):
        note += "; p99 of fewer than 100 requests is their longest"
    return by_case(title, columns, results, cells, note + ".")


def slo_table(results: Sequence[Result]) -> Table | None:
    """What each objective came to, and whether that keeps it; None: none was given."""
    judged = [one for one in results if not one.part and one.summary.verdicts]
    if not judged:
        return None

    def cells(one: Summary) -> list[str]:
        shown = [(percent if verdict.share else number)(verdict.value) for verdict in one.verdicts]
        return [
            f"{text} {'✓' if verdict.met else '✗'}" for text, verdict in zip(shown, one.verdicts, strict=True)
        ]

    columns = [verdict.text for verdict in judged[0].summary.verdicts]
    note = "An objective of requests: the share of all that keeps it, and what is not answered keeps none. "
    note += "One of the run: what its answers came to."
    return by_case("Objectives", columns, judged, cells, note)


def error_table(results: Sequence[Result]) -> Table | None:
    """Every outcome but "ok" and its sentences; None: there was none."""
    rows = []
    for result in results:
        for outcome, count in result.summary.outcomes.items():
            if outcome != OK and not result.part:
                errors = [text.partition(": ") for text in result.summary.errors]
                said = "; ".join(sentence for kind, _, sentence in errors if kind == outcome)
                rows.append([outcome, result.case.name, result.side, said[:200], str(count)])
    columns = ["outcome", "case", "side", "error", "requests"]
    return Table("Not answered", columns, rows, names=4) if rows else None


def ratio_table(unit: Unit, results: Sequence[Result]) -> Table | None:
    """The first side over each other one: medians of the ratios of neighbouring rounds. None: one side."""
    metrics = [metric for metric in unit.metrics if metric in ("ttft", "itl", "latency", "lag")]
    rows = []
    first: Result | None = None
    for result in results:
        if result.part:
            continue
        if first is None or first.case != result.case:
            first = result
            continue
        pairs = list(zip(first.runs, result.runs, strict=False))
        cells = [_ratio(pairs, lambda run: unit.of(summarise(run)))]
        cells += [_ratio(pairs, partial(_median, metric)) for metric in metrics]
        rows.append([result.case.name, f"{first.side} / {result.side}", str(len(pairs)), *cells])
    columns = ["case", "sides", "rounds", unit.name, *(f"{NAMES[metric]} p50" for metric in metrics)]
    note = "Medians of the ratios of neighbouring rounds: what drifts on the machine is in both."
    return Table("Side by side", columns, rows, note, names=2) if rows else None


def _ratio(pairs: Sequence[tuple[LoadRun, LoadRun]], value: Callable[[LoadRun], float | None]) -> str:
    rounds = [(value(ours), value(theirs)) for ours, theirs in pairs]
    ratios = [ours / theirs for ours, theirs in rounds if ours is not None and theirs]
    return f"{median(ratios):.3f}" if ratios else "-"


def _median(metric: str, run: LoadRun) -> float | None:
    """None: the round has no answer with such a figure, which is not a time of zero."""
    values = [value for record in run.counted if record.outcome == OK for value in METRICS[metric](record)]
    return median(values) if values else None


def doubts(results: Sequence[Result]) -> list[str]:
    """Says what makes figures doubtful: this client was the limit, too much was left out, a run was cut."""
    found = []
    firsts: dict[str, Summary] = {}
    for result in results:
        one = result.summary
        first = firsts.setdefault(result.case.name, one)
        cached = (one.cached_share or 0.0) - (first.cached_share or 0.0)
        unsent = one.outcomes.get(UNSENT, 0)
        closed = isinstance(result.case.arrivals(0), Closed)  # as many are under way all the time
        grown = 0 if closed else sum(map(_growth, result.runs))
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
                grown > max(_GROWN, _GROWN_SHARE * one.requests),
                f"{grown} more requests were under way at the end than at the beginning: more came than were "
                "answered, so times grow with --seconds, or --warmup was too short.",
            ),
            (
                cached > _CACHED,
                f"{percent(one.cached_share)} of its prompt tokens came from its prefix cache, and "
                f"{percent(first.cached_share)} of the first side's: are both the same server?",
            ),
            (
                unsent,
                f"{unsent} requests were not sent, as --max-in-flight were under way; they count as errors.",
            ),
            (
                not one.requests and not one.stopped,
                "no request began in the time that counts: --seconds gives more, or --warmup less.",
            ),
            (one.requests and not one.ok, "no request was answered."),
        ]
        if not result.part:
            where = f"{result.case.name}, {result.side}"
            found += [f"{where}: {sentence}" for doubtful, sentence in sentences if doubtful]
    return found


def _growth(run: LoadRun) -> int:
    """How many more requests are under way at the window's end than at its beginning."""
    began, ended = run.began, run.began + run.seconds
    return sum(
        (record.sent <= ended < record.ended) - (record.sent <= began < record.ended)
        for record in run.records
    )


def print_tables(title: str, unit: Unit, results: Sequence[Result], slo: Slo, console: Console) -> None:
    """Prints what a terminal is wide enough for, and what makes it doubtful."""
    more = ratio_table(unit, results), slo_table(results), error_table(results)
    for table in (main_table(title, unit, results, slo), *more):
        if table:
            print_table(table, console)
    for sentence in doubts(results):
        console.print(sentence, markup=False, style="yellow")


def write_json(path: Path, figures: Mapping[str, Any]) -> None:
    """Writes plain data, whole or not at all, with null for nan and inf, which JSON lacks.

    Raises: SettingsError: the file cannot be written.
    """
    try:
        replace_file(path, to_json(figures, indent=2, inf_nan_mode="null", fallback=str) + b"\n")
    except OSError as error:
        raise SettingsError(f"--json {path}: cannot be written: {error.strerror}") from None
