"""Reads the lists of words and templates beside a module: the training data that is written by hand."""

from __future__ import annotations

from pathlib import Path


def read_lists(module: str) -> dict[str, tuple[str, ...]]:
    """Lists by name from the `.txt` file of a module's `__file__`.

    A list is "name: item | item …" and the indented lines behind it; "-" is an empty item, # a comment.
    """
    text = Path(module).with_suffix(".txt").read_text(encoding="utf-8").replace("\n    ", " ")
    named = (line.partition(": ") for line in text.splitlines() if not line.startswith("#"))
    rows = ((name, items.split(" | ")) for name, _, items in named)
    return {name: tuple("" if item == "-" else item for item in items) for name, items in rows}
