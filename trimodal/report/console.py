"""Makes and prints tables with rich."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

LEFT = {"side", "tier", "policy", "engine", "option", "class", "store"}
NARROW: dict[str, Any] = {
    "box": box.SIMPLE_HEAD, "collapse_padding": True, "pad_edge": False, "show_edge": False,
}  # fmt: skip
"""Fits many columns into 80."""


@dataclass(frozen=True)
class Table:
    """Rows of text.

    Attributes:
        names: so many columns on the left are names, all others figures.
        note: what to know to read it.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    names: int = 1


def make_table(title: str, columns: str, **style: Any) -> RichTable:
    """A table whose `columns`, "clients|side|p50", hold numbers, but for those that name something."""
    table = RichTable(title=title, **style)
    for column in columns.split("|"):
        table.add_column(column, justify="left" if column in LEFT else "right", no_wrap=bool(style))
    return table


def print_table(table: Table, console: Console) -> None:
    """Prints one table and its note."""
    shown = RichTable(
        title=escape(table.title), title_justify="left", show_header=any(table.columns), **NARROW
    )
    for index, column in enumerate(table.columns):
        shown.add_column(escape(column), justify="left" if index < table.names else "right", overflow="fold")
    for row in table.rows:
        shown.add_row(*map(escape, row))
    console.print(shown)
    if table.note:
        console.print(escape(table.note), style="dim")
