"""Counts the prompt tokens that the engine's prefix cache will serve, in a mirror of its block table.

OpenVINO GenAI keeps the KV blocks of ended sequences, keyed by a hash over all tokens up to the block's end,
and hands them to a later prompt with the same beginning; it does not say how many it found. This mirror
replays the same rule on whole blocks, so its count is a lower bound: a partly filled last block may be reused
as well, and is not counted.
"""

from __future__ import annotations

from collections import OrderedDict


class PrefixMirror:
    """Least-recently-used set of block keys, as large as the KV pool."""

    def __init__(self, capacity: int, block_tokens: int) -> None:
        self._capacity = capacity
        self._block_tokens = block_tokens
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self._live: dict[int, list[int]] = {}

    def add(self, id: int, prompt_ids: list[int]) -> int:
        """Cached tokens of a prompt that is added now; remembers the prompt under `id`."""
        self._live[id] = prompt_ids
        hits = 0
        for key in self._keys(prompt_ids):
            if key not in self._blocks:
                break
            self._blocks.move_to_end(key)
            hits += 1
        # The engine computes the last prompt token anew even when all of it is cached: it needs its logits.
        return min(hits * self._block_tokens, len(prompt_ids) - 1)

    def prefilled(self, id: int) -> None:
        """The prompt of `id` has been computed: its blocks can be shared from now on."""
        self._keep(self._live.get(id, []))

    def finish(self, id: int, generated: list[int]) -> None:
        """`id` ended: the blocks of its prompt and its answer stay for others.

        The last generated token was never fed back, so it has no KV.
        """
        prompt = self._live.pop(id, None)
        if prompt is not None:
            self._keep(prompt + generated[:-1])

    def drop(self, id: int) -> None:
        """`id` was cancelled: what it had computed is unknown, so it counts for nothing."""
        self._live.pop(id, None)

    def _keep(self, tokens: list[int]) -> None:
        for key in self._keys(tokens):
            self._blocks[key] = None
            self._blocks.move_to_end(key)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)

    def _keys(self, tokens: list[int]) -> list[int]:
        keys, key = [], 0
        for start in range(0, len(tokens) - self._block_tokens + 1, self._block_tokens):
            key = hash((key, tuple(tokens[start : start + self._block_tokens])))
            keys.append(key)
        return keys
