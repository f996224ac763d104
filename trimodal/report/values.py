"""Defines what a report consists of: sections with text, tables and figures."""

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


@dataclass(frozen=True)
class Figure:
    """A picture as an `<svg>` element. `caption`: what to see in it."""

    title: str
    svg: str
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a report. `text`: paragraphs, an empty line between two; `warnings`: what stands out."""

    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Report:
    """A whole report. `facts`: what was measured, where and when, as name and value."""

    title: str
    summary: str
    sections: Sequence[Section]
    facts: Sequence[tuple[str, str]] = ()
