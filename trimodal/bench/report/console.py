"""Prints tables of a report with rich."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from trimodal.bench.common.tables import NARROW, make_table
from trimodal.bench.report.values import Table


def print_table(table: Table, console: Console) -> None:
    """Prints one table and its note."""
    shown = make_table(escape(table.title), "", **NARROW)
    shown.columns.clear()
    for index, column in enumerate(table.columns):
        shown.add_column(escape(column), justify="left" if index < table.names else "right")
    for row in table.rows:
        shown.add_row(*map(escape, row))
    console.print(shown)
    if table.note:
        console.print(escape(table.note), style="dim")
