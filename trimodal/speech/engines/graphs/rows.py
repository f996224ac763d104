"""Defines what one row of a batch has written, which tokens it may take, and the sizes that are built."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trimodal.speech.whisper.artefact import GenerationSpec
from trimodal.speech.whisper.tokens import WhisperTokens

Floats = NDArray[np.float32]
Tokens = NDArray[np.int64]
SEED = 0
LEAST = -87.0  # of a log-probability: that of the smallest float32
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


@dataclass(slots=True)
class Row:
    """What one row of a batch has written.

    Attributes:
        most_tokens: its bound.
        prefix: tokens that it begins with, taken in place of the most probable ones.
        draft: tokens that are expected behind them, as a window before had them.
        tokens, chances: written, without the end token, and with which probability among the allowed ones.
        made: how many tokens were chosen, the end token with them.
        log_probability: sum over all of them and the end token.
        attention: float32[heads, n, positions] of every run of the decoder that concerns the text.
    """

    most_tokens: int
    prefix: list[int] = field(default_factory=list)
    draft: list[int] = field(default_factory=list)
    made: int = 0
    log_probability: float = 0.0
    tokens: list[int] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)
    attention: list[Floats] = field(default_factory=list)
    draws: np.random.Generator = field(default_factory=lambda: np.random.default_rng(SEED))
    ended: bool = False
    last: int = 0  # chosen

    def take(self, token: int, log_probability: float, *, end: int) -> None:
        """Appends a token; the row has ended with the last that its length allows, or with <|endoftext|>."""
        self.made += 1
        self.last = token
        self.log_probability += log_probability
        if token != end:
            self.tokens.append(token)
            self.chances.append(math.exp(log_probability))
        self.ended = token == end or len(self.tokens) >= self.most_tokens


class Rules:
    """Which tokens may be taken.

    Attributes:
        end: <|endoftext|>.
        never, not_first: int64[n], ascending; `not_first` holds `never`, too. The first token is that behind
            the prefix. OpenAI's checkpoints name <|endoftext|>, so there a text does not end with its prefix.
        positions: places of the decoder, for prompt and text.
    """

    def __init__(self, *, end: int, never: Iterable[int], not_first: Iterable[int], positions: int) -> None:
        """`never` may not be made at all, `not_first` not as the first; `positions` hold prompt and text."""
        self.end = end
        self.never = np.array(sorted(set(never)), np.int64)
        self.not_first = np.array(sorted({*self.never.tolist(), *not_first}), np.int64)
        self.positions = positions

    def longest(self, given: int) -> int:
        """Tokens that a text may have after `given` ones: half of the places, or what is left."""
        return min(self.positions // 2, self.positions - given)

    @classmethod
    def of(cls, tokens: WhisperTokens, spec: GenerationSpec, positions: int) -> Rules:
        """Those of a checkpoint: what it suppresses, and special tokens that no transcript holds."""
        return cls(
            end=tokens.end,
            never=[*spec.suppressed, *tokens.never_made()],
            not_first=spec.suppressed_first,
            positions=positions,
        )
