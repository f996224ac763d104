"""Makes the whole report of load runs: the same for every kind of work."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from trimodal.bench.load.records import UNSENT
from trimodal.bench.load.rounds import Result
from trimodal.bench.load.slo import Slo
from trimodal.bench.report.tables import (
    Unit,
    error_table,
    main_table,
    ratio_table,
    slo_table,
)
from trimodal.report.console import Table, print_table

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


def _tables(title: str, unit: Unit, results: Sequence[Result], slo: Slo) -> list[Table]:
    more = ratio_table(unit, results), slo_table(results), error_table(results)
    return [main_table(title, unit, results, slo), *(table for table in more if table)]
