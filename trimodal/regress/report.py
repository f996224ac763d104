"""Reports a comparison, as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trimodal.regress.compare import Comparison
from trimodal.regress.latencies import Latency
from trimodal.regress.values import VERDICTS, Finding, RecordedRun

_STYLES = {"worse": "red", "better": "green", "changed": "yellow", "known": "yellow"}


def print_comparison(
    comparison: Comparison, before: RecordedRun, after: RecordedRun, console: Console, other: str = ""
) -> None:
    """Knobs, findings, times by task, counts; `other` names the server when `before` is no baseline."""
    name = other or f"baseline of {before.recorded_at}"
    console.print(f"{name}: {len(before.cases)} cases; now {len(after.cases)} cases")
    for knob in comparison.knobs:
        console.print(Text(f"  {knob}"))
    print_findings(comparison.findings, console)
    _print_groups([one for one in comparison.latencies if not one.case], console)
    if comparison.note:
        console.print(comparison.note, soft_wrap=True)
    console.print(summary(comparison.findings, comparison.compared))


def print_findings(findings: Sequence[Finding], console: Console) -> None:
    """A table of them; nothing when there are none."""
    if not findings:
        return
    table = _table(("case", "", "what", "before", "now", "detail"), ("p",))
    for one in findings:
        mark = Text(one.verdict, style=_STYLES[one.verdict])
        # Answers are data: Text shows brackets in them as they are.
        cells = map(Text, (one.what, one.before, one.after, one.detail))
        table.add_row(Text(one.case), mark, *cells, _p(one.p))
    console.print(table)


def summary(findings: Sequence[Finding], compared: int) -> str:
    """Returns the counts, as one line."""
    counts = Counter(one.verdict for one in findings)
    parts = [f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]]
    return f"{compared} cases compared: {', '.join(parts) or 'nothing changed'}"


def _print_groups(groups: Sequence[Latency], console: Console) -> None:
    if not groups:
        return
    table = _table(("all cases of", "time"), ("before", "now", "ratio", "p"))
    for one in groups:
        style = _STYLES.get(one.verdict or "", "")
        times = f"{one.before:.2f} ms", f"{one.after:.2f} ms", Text(f"{one.ratio:.2f}", style=style)
        table.add_row(one.name.removeprefix("all "), one.metric, *times, _p(one.p))
    console.print(table)


def _table(left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column in (*left, *right):
        table.add_column(column, overflow="fold", justify="right" if column in right else "left")
    return table


def _p(value: float | None) -> str:
    if value is None:
        return ""
    return "<0.001" if value < 0.001 else f"{value:.3f}"
