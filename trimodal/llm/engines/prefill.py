"""Shares a step's tokens out among the prompts that are still to be computed."""

from __future__ import annotations

from collections.abc import Sequence

_OLDEST = 4  # one part in so many of a step is the oldest prompt's


def share(remaining: Sequence[int], budget: int, block_tokens: int) -> list[int]:
    """Tokens of each prompt that the next step computes: all that is left of it, or whole blocks.

    The shortest goes first, so that nobody waits for a long one; the oldest always has its part, so that it
    is not passed for ever.

    Args:
        remaining: tokens that each prompt lacks, the oldest first.
        budget: tokens of the step. block_tokens: of a KV block, where a prompt can be cut.
    """
    given, budget = [0] * len(remaining), max(0, budget)
    oldest = min(remaining[0], budget // _OLDEST // block_tokens * block_tokens) if remaining else 0
    for at in sorted(range(len(remaining)), key=remaining.__getitem__):
        most = budget if at == 0 else budget - oldest
        tokens = remaining[at] if remaining[at] <= most else most // block_tokens * block_tokens
        given[at], budget = tokens, budget - tokens
        oldest = 0 if at == 0 else oldest
    return given
