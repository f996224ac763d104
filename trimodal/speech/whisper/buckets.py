"""Computes the sizes that a decoder with static shapes is built for and runs in."""

from __future__ import annotations

# After what was said before: <|startoftranscript|>, language, task, <|notimestamps|>.
START = 4


def bucket_sizes(max_batch: int) -> tuple[int, ...]:
    """Numbers of rows that are run, ascending: 1, 2, 4, … below `max_batch`, then `max_batch`."""
    doubling = [1 << power for power in range(max_batch.bit_length())]
    return (*(size for size in doubling if size < max_batch), max_batch)


def longest_opening(positions: int) -> int:
    """Tokens before the text at most: <|startofprev|> and what was said before take half of the places."""
    return positions // 2 + START


def most_lines(positions: int) -> int:
    """Lines of attention that a text is aligned by, at most: one a token, from <|startoftranscript|> on."""
    return START + positions // 2
