"""Counts the prompt tokens that the engine's prefix cache will serve, in a mirror of its block table.

OpenVINO GenAI keeps the KV blocks of ended sequences, keyed by a hash over all tokens up to the block's end,
and hands them to a later prompt with the same beginning; it does not say how many it found. This mirror
replays the same rule on whole blocks, so its count is a lower bound: a partly filled last block may be reused
as well, and is not counted.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

_KEY = secrets.token_bytes(32)


def salted(prompt_ids: list[int], salt: str) -> list[int]:
    """The ids with a salt of 31 bits above the 32 of the first one; none for "".

    The graphs of OpenVINO read ids as 32 bits, while its prefix cache hashes all 64: prompts of different
    salts are computed alike and never find each other's blocks (each block's key depends on all ids before).
    They are made with a key of this process: else a client could compute a `cache_salt` that has
    another's bits.
    """
    if not salt:
        return prompt_ids
    digest = int.from_bytes(hashlib.blake2b(salt.encode(), key=_KEY, digest_size=4).digest(), "big")
    return [prompt_ids[0] | (digest >> 1 or 1) << 32, *prompt_ids[1:]]


def block_keys(ids: list[int], block_tokens: int) -> list[int]:
    """A key for each whole block, which depends on all ids before it."""
    keys, key = [], 0
    for start in range(0, len(ids) - block_tokens + 1, block_tokens):
        key = hash((key, *ids[start : start + block_tokens]))
        keys.append(key)
    return keys


@dataclass(frozen=True)
class _Prompt:
    ids: list[int]
    keys: list[int]  # of its whole blocks


class PrefixMirror:
    """Least-recently-used set of block keys, as large as the KV pool."""

    def __init__(self, capacity: int, block_tokens: int) -> None:
        self._capacity = capacity
        self._block_tokens = block_tokens
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self._live: dict[int, _Prompt] = {}

    def add(self, id: int, prompt_ids: list[int]) -> int:
        """Cached tokens of a prompt that is added now; remembers the prompt under `id`."""
        self._live[id] = _Prompt(prompt_ids, block_keys(prompt_ids, self._block_tokens))
        return self.cached(id)

    def cached(self, id: int) -> int:
        """Tokens of the prompt of `id` that are cached now."""
        prompt, hits = self._live[id], 0
        for key in prompt.keys:
            if key not in self._blocks:
                break
            self._blocks.move_to_end(key)
            hits += 1
        # The engine computes the last prompt token anew even when all of it is cached: it needs its logits.
        return min(hits * self._block_tokens, len(prompt.ids) - 1)

    def prefilled(self, id: int, tokens: int) -> None:
        """The first `tokens` of the prompt of `id` have been computed: their blocks can be shared."""
        if prompt := self._live.get(id):
            self._keep(prompt.keys[: tokens // self._block_tokens])

    def finish(self, id: int, generated: list[int]) -> None:
        """`id` ended: the blocks of its prompt and its answer stay for others.

        The last generated token was never fed back, so it has no KV.
        """
        if prompt := self._live.pop(id, None):
            self._keep(block_keys(prompt.ids + generated[:-1], self._block_tokens))

    def drop(self, id: int) -> None:
        """`id` was cancelled: what its answer had computed is unknown, so it counts for nothing."""
        self._live.pop(id, None)

    def _keep(self, keys: Sequence[int]) -> None:
        for key in keys:
            self._blocks[key] = None
            self._blocks.move_to_end(key)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
