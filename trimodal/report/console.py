"""Prints tables with rich."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

_WHOLE = 16  # letters of a name that is not folded where a terminal is narrow


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


def print_table(table: Table, console: Console) -> None:
    """Prints one table and its note, as narrow as its columns allow."""
    shown = RichTable(
        title=escape(table.title),
        title_justify="left",
        show_header=any(table.columns),
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
        show_edge=False,
    )
    for index, column in enumerate(table.columns):
        longest = max((len(row[index]) for row in table.rows), default=0)
        shown.add_column(
            escape(column),
            justify="left" if index < table.names else "right",
            overflow="fold",
            no_wrap=index < table.names and longest <= _WHOLE,
        )
    for row in table.rows:
        shown.add_row(*map(escape, row))
    console.print(shown)
    if table.note:
        console.print(escape(table.note), style="dim")
