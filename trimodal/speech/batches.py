"""Puts what may share a run of a model into batches."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


def batches(
    items: Iterable[Item], key: Callable[[Item], Hashable], most: int | None = None
) -> list[list[Item]]:
    """Items that agree in `key`, at most `most` together, in order of first appearance."""
    groups: dict[Hashable, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return [
        group[first : first + (most or len(group))]
        for group in groups.values()
        for first in range(0, len(group), most or len(group))
    ]
