"""Whisper whose tokens another runtime writes: language, silence and word times still come from our graphs.

A runtime that batches by itself may write faster than token by token from here, but gives neither
attention nor the first step's probabilities. So our graphs encode, too, tell the language, and follow
what was written in one more run, for its attention. Which runtime writes is the engine's affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trimodal.speech.whisper.artefact import GenerationSpec, SpeechShapes
from trimodal.speech.whisper.features import Features
from trimodal.speech.whisper.graphs import Decoding, Graphs
from trimodal.speech.whisper.model import GraphWhisper, Heard
from trimodal.speech.whisper.tokens import WhisperTokens


@dataclass(frozen=True, slots=True)
class Written:
    """What was written for one row: tokens without <|endoftext|>, and natural logarithms of their chances.

    `log_probabilities` has one more where the runtime tells that of <|endoftext|>, which `ended` says came.
    """

    tokens: list[int]
    log_probabilities: list[float]
    ended: bool


class Writer(Protocol):
    """Writes a batch of texts."""

    def write(
        self, features: Features, prompts: Sequence[list[int]], longest: int, temperature: float
    ) -> list[Written]:
        """At most `longest` tokens for each row of features float32[rows, mel, frames], after its prompt."""

    def close(self) -> None:
        """Frees what it holds."""


class WriterWhisper(GraphWhisper):
    """One model, its vocabulary, our graphs of it and its writer."""

    def __init__(
        self,
        graphs: Graphs,
        writer: Writer,
        tokens: WhisperTokens,
        shapes: SpeechShapes,
        spec: GenerationSpec,
        *,
        max_batch: int,
    ) -> None:
        super().__init__(graphs, tokens, shapes, spec, max_batch=max_batch, one_at_a_time=True)
        self._writer = writer

    def close(self) -> None:
        """Frees writer and graphs."""
        self._writer.close()
        super().close()

    def _write(self, batch: list[Heard], features: Features, decoding: Decoding, temperature: float) -> None:
        end, places = self._tokens.end, self._shapes.positions
        prompts = [[*heard.given, *heard.opening] for heard in batch]
        room = min(places // 2, places - len(prompts[0]))
        longest = min(room, max(heard.row.most_tokens for heard in batch))
        written = self._writer.write(features, prompts, longest, temperature)
        runs = [_take(heard, one, end) for heard, one in zip(batch, written, strict=True)]
        # One run over opening and text: what follows a row's own text is behind it, and is not looked at.
        rows = [
            [*heard.opening, *heard.row.tokens[: count - 1]] for heard, count in zip(batch, runs, strict=True)
        ]
        width = max(map(len, rows))
        _, attention = decoding.step(np.array([row + [end] * (width - len(row)) for row in rows], np.int64))
        for heard, count, weights in zip(batch, runs, attention, strict=True):
            first = len(heard.opening)
            heard.row.attention.append(weights[:, :first])
            heard.row.attention += [weights[:, line : line + 1] for line in range(first, first + count - 1)]


def _take(heard: Heard, written: Written, end: int) -> int:
    """The row's own tokens of what was written; how many runs of a decoder would have made them."""
    row, chances = heard.row, written.log_probabilities
    for token, chance in zip(written.tokens, chances, strict=False):
        row.take(token, chance, end=end)
        if row.ended:
            return len(row.tokens)
    if not written.ended:
        return max(1, len(row.tokens))
    row.take(end, chances[len(written.tokens)] if len(chances) > len(written.tokens) else 0.0, end=end)
    return len(row.tokens) + 1
