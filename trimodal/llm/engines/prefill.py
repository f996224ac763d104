"""Shares a step's tokens out among the prompts that are still to be computed."""

from __future__ import annotations

from collections.abc import Sequence

OLDEST = 4
"""One part in so many of a step is the oldest long prompt's; of steps of one block, one step in so many."""


class PrefillShares:
    """Tells what each step computes of the prompts.

    The shortest go first, so that nobody waits for a long one, and a step that answers any computes no more
    of the long ones than the oldest's part, so that it soon ends. That part it always has, or its turn where
    a step is one block only: it is not passed for ever.

    Args:
        block_tokens: of a KV block, where a prompt can be cut.
    """

    def __init__(self, block_tokens: int) -> None:
        self._block = block_tokens
        self._passed = 0  # steps in turn that computed others, and none of the oldest

    def share(self, remaining: Sequence[int], budget: int) -> list[int]:
        """Tokens of each prompt that the next step computes: all that is left of it, or whole blocks.

        Args:
            remaining: tokens that each prompt lacks, the oldest first. budget: tokens of the step.
        """
        given, left = [0] * len(remaining), max(0, budget)
        blocks = left // self._block
        due = blocks > 1 or self._passed >= OLDEST - 1
        part = (blocks // OLDEST or min(blocks, int(due))) * self._block
        order = sorted(range(len(remaining)), key=remaining.__getitem__)
        while order and remaining[order[0]] <= left - (part if len(order) > 1 else 0):
            at = order.pop(0)
            given[at] = remaining[at]
            left -= remaining[at]
        if not order:
            return given
        oldest = min(order)
        if len(order) == len(remaining) and order[0] != oldest:
            given[order[0]] = (left - part) // self._block * self._block
        elif len(order) == len(remaining):
            part = left // self._block * self._block
        given[oldest] = min(part, remaining[oldest])
        if given[oldest]:
            self._passed = 0
        elif any(given):
            self._passed += 1
        return given
