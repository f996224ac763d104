"""Keeps the prefix cache of one simulated replica: which beginnings of prompts have KV blocks there."""

from __future__ import annotations

from collections import OrderedDict

Key = str | int


class PrefixCache:
    """Blocks by prefix, the least recently used one leaves first.

    The engine keys single blocks (`trimodal/llm/engines/prefix_mirror.py`); here all blocks of one prefix
    stay and leave together. Prompts of their own take room as they do there: what nobody asks for again
    pushes out what somebody would.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[Key, int] = OrderedDict()
        self._alone = 0
        self.blocks = 0

    def find(self, prefix: Key, blocks: int) -> int:
        """Blocks of this prefix that are here, at most `blocks`."""
        found = self._kept.get(prefix)
        if found is None:
            return 0
        self._kept.move_to_end(prefix)
        return min(found, blocks)

    def keep(self, prefix: Key, blocks: int) -> None:
        """Keeps so many blocks of a prefix; one that has more already loses none."""
        more = blocks - self._kept.get(prefix, 0)
        if more > 0:
            self._kept[prefix] = blocks
            self.blocks += more
        if blocks:
            self._kept.move_to_end(prefix)
        if self.blocks > self._capacity:
            self._shrink()

    def keep_alone(self, blocks: int) -> None:
        """Keeps blocks that no other prompt begins with."""
        if blocks and self._capacity:
            self._alone -= 1  # below zero: no id of a trace
            self._kept[self._alone] = blocks
            self.blocks += blocks
            if self.blocks > self._capacity:
                self._shrink()

    def clear(self) -> None:
        """Forgets everything: the process is a new one."""
        self._kept.clear()
        self.blocks = 0

    def _shrink(self) -> None:
        while self.blocks > self._capacity:
            self.blocks -= self._kept.popitem(last=False)[1]
