"""Reads word lists: those of the `.txt` files beside this one, and those written in the code."""

from __future__ import annotations

from pathlib import Path


def word_groups(name: str) -> list[str]:
    """The groups of `name`.txt: parted by semicolons or the ends of lines; a line with # is a comment."""
    lines = Path(__file__).with_name(f"{name}.txt").read_text(encoding="utf-8").splitlines()
    text = ";".join(line for line in lines if not line.startswith("#"))
    return [group.strip() for group in text.split(";") if group.strip()]


def word_set(text: str) -> frozenset[str]:
    """The words of a list written as text."""
    return frozenset(text.split())


def word_map(text: str) -> dict[str, str]:
    """The pairs of a list such as "best=good means": a word alone stands for itself."""
    pairs = (pair.partition("=") for pair in text.split())
    return {word: other or word for word, _, other in pairs}
