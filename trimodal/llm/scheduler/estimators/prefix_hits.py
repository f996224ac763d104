"""How much of a prompt the engine's prefix cache will spare: what it spared the last one that began alike."""

from __future__ import annotations

from collections import OrderedDict

_KEPT = 4096


class PrefixHits:
    """Prefix → cached tokens, the latest few thousand. It holds numbers, never a prompt."""

    def __init__(self) -> None:
        self._cached: OrderedDict[int, int] = OrderedDict()

    def learn(self, prefix: int, cached_tokens: int) -> None:
        """A prompt with this beginning was computed; 0 stands for a beginning that nobody named."""
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
        """The engine is a new one: its prefix cache is empty."""
        self._cached.clear()
