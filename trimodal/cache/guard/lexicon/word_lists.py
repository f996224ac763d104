"""Reads word lists: those of the `.txt` files beside this one, and those written in the code."""

from __future__ import annotations

from pathlib import Path


def word_groups(name: str) -> list[str]:
    """Reads the groups of `name`.txt: parted by semicolons or line ends; lines with # are comments."""
    lines = Path(__file__).with_name(f"{name}.txt").read_text(encoding="utf-8").splitlines()
    text = ";".join(line for line in lines if not line.startswith("#"))
    return [group.strip() for group in text.split(";") if group.strip()]


def word_list(text: str) -> list[str]:
    """Returns the words of a list written as text, in order."""
    return text.split()


def word_set(text: str) -> frozenset[str]:
    """Returns the words of a list written as text."""
    return frozenset(text.split())


def word_map(text: str) -> dict[str, str]:
    """Returns the pairs of a list such as "best=good means": a word alone stands for itself."""
    pairs = (pair.partition("=") for pair in text.split())
    return {word: other or word for word, _, other in pairs}
