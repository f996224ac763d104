"""Defines a table: rows of text under a title."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
