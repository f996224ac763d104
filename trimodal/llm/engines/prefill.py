"""Shares a step's tokens out among the prompts that are still to be computed."""

from __future__ import annotations

from collections.abc import Sequence

OLDEST = 4
"""One part in so many of a step is the oldest long prompt's."""


def share(remaining: Sequence[int], budget: int, block_tokens: int) -> list[int]:
    """Tokens of each prompt that the next step computes: all that is left of it, or whole blocks.

    The shortest go first, so that nobody waits for a long one, and a step that answers any computes no more
    of the long ones than the oldest's part, so that it soon ends. That part it always has: it is not passed
    for ever.

    Args:
        remaining: tokens that each prompt lacks, the oldest first.
        budget: tokens of the step. block_tokens: of a KV block, where a prompt can be cut.
    """
    given, left = [0] * len(remaining), max(0, budget)
    blocks = left // block_tokens
    part = (blocks // OLDEST or int(blocks > 1)) * block_tokens
    order = sorted(range(len(remaining)), key=remaining.__getitem__)
    while order and remaining[order[0]] <= left - (part if len(order) > 1 else 0):
        at = order.pop(0)
        given[at] = remaining[at]
        left -= remaining[at]
    if not order:
        return given
    oldest = min(order)
    if len(order) == len(remaining) and order[0] != oldest:
        given[order[0]] = (left - part) // block_tokens * block_tokens
    elif len(order) == len(remaining):
        part = left // block_tokens * block_tokens
    given[oldest] = min(part, remaining[oldest])
    return given
