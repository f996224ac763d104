"""Makes the tables that experiments print."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table

LEFT = {"side", "store"}  # columns of names
NARROW: dict[str, Any] = {
    "box": box.SIMPLE_HEAD, "collapse_padding": True, "pad_edge": False, "show_edge": False,
}  # fmt: skip
"""Fits many columns into 80."""


def make_table(title: str, columns: str, **style: Any) -> Table:
    """A table whose `columns`, "clients|side|p50", hold numbers, but for those that name something."""
    table = Table(title=title, **style)
    for column in columns.split("|"):
        table.add_column(column, justify="left" if column in LEFT else "right", no_wrap=bool(style))
    return table
