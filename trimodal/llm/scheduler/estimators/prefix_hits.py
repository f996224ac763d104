"""Predicts prefix cache hits: a prompt gets as many as the last one with the same beginning."""

from __future__ import annotations

from collections import OrderedDict

_KEPT = 4096


class PrefixHits:
    """Hash of a prefix → cached tokens, of the latest few thousand prompts."""

    def __init__(self) -> None:
        self._cached: OrderedDict[int, int] = OrderedDict()

    def learn(self, prefix: int, cached_tokens: int) -> None:
        """Notes the hits of a prompt with this prefix; 0: its prefix is not known."""
        if not prefix:
            return
        self._cached[prefix] = cached_tokens
        self._cached.move_to_end(prefix)
        if len(self._cached) > _KEPT:
            self._cached.popitem(last=False)

    def uncached(self, prefix: int, prompt_tokens: int) -> int:
        """Tokens of a prompt that the engine will have to compute, 1 at least."""
        return max(1, prompt_tokens - self._cached.get(prefix, 0))

    def clear(self) -> None:
        """Forgets all: the engine is a new one, and its prefix cache is empty."""
        self._cached.clear()
