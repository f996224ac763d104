"""Reads word lists written as plain text."""

from __future__ import annotations


def word_set(text: str) -> frozenset[str]:
    """The words of a list written as text."""
    return frozenset(text.split())


def word_map(text: str) -> dict[str, str]:
    """The pairs of a list such as "best=good means": a word alone stands for itself."""
    pairs = (pair.partition("=") for pair in text.split())
    return {word: other or word for word, _, other in pairs}
