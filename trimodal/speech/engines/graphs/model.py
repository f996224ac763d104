"""Turns batches of windows into timed words by Whisper's decode loop.

Word times come from the attention of decoding itself, so no second pass aligns them. In FP32 a
window's result does not depend on its neighbours; in fewer bits a close decision may change.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from trimodal.audio.values import SAMPLE_RATE, Word
from trimodal.speech.engines.graphs.rows import Floats, Row, Tokens
from trimodal.speech.values import Recognition, Window, batches, likely
from trimodal.speech.whisper.alignment import token_path
from trimodal.speech.whisper.artefact import SpeechShapes
from trimodal.speech.whisper.features import HOP, Features, log_mel_batch, smallest_context
from trimodal.speech.whisper.tokens import WhisperTokens
from trimodal.speech.whisper.word_timestamps import compression_ratio, most_tokens, timed_words, token_starts


class Decoding(Protocol):
    """Rows whose texts are written together."""

    def open(self, tokens: Tokens, at: int) -> Floats:
        """Appends tokens int64[rows, n] that are given; attention is kept from token `at` on.

        Returns:
            Logits float32[rows, vocabulary] after token `at`.
        """

    def write(self, rows: Sequence[Row], temperature: float) -> None:
        """Decodes each row to its end or its bound; puts tokens and attention into it."""


class Graphs(Protocol):
    """Encoder and decoder of one model. One decoding at a time: the next may begin in the same memory."""

    def start(self, features: Features) -> Decoding:
        """Encodes features float32[rows, mel, frames]; a decoding of all its rows, without tokens yet."""

    def close(self) -> None:
        """Frees the weights."""


G = TypeVar("G", bound=Graphs)


@dataclass(slots=True)
class WindowState:
    """A window on its way through a batch; `before` is what was said before, and <|startoftranscript|>."""

    window: Window
    row: Row
    before: list[int]
    language: str = ""
    language_probability: float = 1.0
    language_probabilities: tuple[tuple[str, float], ...] = ()
    no_speech: float = 0.0

    @property
    def samples(self) -> int:
        return len(self.window.samples)

    @property
    def written(self) -> str:
        """The language of its text."""
        return self.window.written_in(self.language)


class GraphWhisper(Generic[G]):
    """One model and its vocabulary. Calls may come from several threads; `graphs`: of checks, too."""

    def __init__(self, graphs: G, tokens: WhisperTokens, shapes: SpeechShapes, *, max_batch: int) -> None:
        self._turn = threading.Lock()  # The graphs have one set of buffers: batches of threads take turns.
        self.graphs = graphs
        self._tokens = tokens
        self._shapes = shapes
        self._max_batch = max_batch
        self.contexts_s = shapes.contexts_s
        self.languages = tuple(tokens.languages) or ("en",)

    def recognise(self, windows: Sequence[Window], temperature: float = 0.0) -> list[Recognition]:
        """What is heard in each window, in order; above temperature 0 drawn with one fixed seed a window."""
        states = [self._prepared(window) for window in windows]
        for batch in batches(
            states,
            lambda state: (smallest_context(self.contexts_s, state.samples), len(state.before)),
            self._max_batch,
        ):
            self._run(batch, temperature)
        return [self._recognition(state, temperature) for state in states]

    def close(self) -> None:
        """Frees the weights."""
        self.graphs.close()

    def _prepared(self, window: Window) -> WindowState:
        room = self._shapes.positions // 2 - 1  # for what was said before, as openai-whisper allows
        prompt = self._tokens.prompt(self.languages[0], window.prompt, room)
        # What comes after <|startoftranscript|> waits for the language.
        before = prompt[: prompt.index(self._tokens.start) + 1]
        return WindowState(window, Row(most_tokens=0), before)  # the bound, too

    def _run(self, batch: list[WindowState], temperature: float) -> None:
        """Everything for windows of one context and one length of what was said before."""
        context_s = smallest_context(self.contexts_s, max(state.samples for state in batch))
        features = log_mel_batch(
            [state.window.samples for state in batch], context_s, self._shapes.mel_bins, self._shapes.padding
        )
        with self._turn:
            decoding = self.graphs.start(features)
            before = [state.before for state in batch]
            if all(state.window.language or not self._tokens.languages for state in batch):
                # Nobody waits for a language: no run of its own for <|startoftranscript|>.
                opening = [[*state.before, *self._following(state, state.window.language)] for state in batch]
                self._begin(batch, decoding.open(np.array(opening, np.int64), len(before[0]) - 1))
            else:
                self._begin(batch, decoding.open(np.array(before, np.int64), len(before[0]) - 1))
                following = [self._following(state, state.language) for state in batch]
                decoding.open(np.array(following, np.int64), 0)
            decoding.write([state.row for state in batch], temperature)

    def _following(self, state: WindowState, language: str) -> list[int]:
        """The tokens between <|startoftranscript|> and the text."""
        start = self._tokens.start_sequence(language, state.window.translate)
        return [*start[1:], self._tokens.no_timestamps]

    def _begin(self, batch: list[WindowState], logits: Floats) -> None:
        """By the logits after <|startoftranscript|>: does anybody speak, in which language, how much."""
        silent = np.exp(logits[:, self._tokens.no_speech] - log_sum(logits))
        codes, ids = list(self._tokens.languages), list(self._tokens.languages.values())
        for index, state in enumerate(batch):
            state.no_speech = min(float(silent[index]), 1.0)
            state.language = state.window.language or self.languages[0]
            if codes and not state.window.language:
                chances = logits[index, ids] - log_sum(logits[index : index + 1, ids])
                known = zip(codes, np.minimum(np.exp(chances), 1.0).tolist(), strict=True)
                state.language_probabilities = likely(known)
                state.language, state.language_probability = state.language_probabilities[0]
            state.row.most_tokens = most_tokens(state.samples / SAMPLE_RATE, state.written)
            room = state.row.most_tokens
            state.row.prefix = self._tokens.encode(state.window.prefix)[:room]
            state.row.draft = self._tokens.encode(state.window.draft)[: room - len(state.row.prefix)]

    def _recognition(self, state: WindowState, temperature: float) -> Recognition:
        words = self._words(state)
        return Recognition(
            words=words,
            language=state.language,
            no_speech_probability=state.no_speech,
            average_log_probability=state.row.log_probability / state.row.made,
            compression_ratio=compression_ratio("".join(word.text for word in words)),
            temperature=temperature,
            language_probability=state.language_probability,
            language_probabilities=state.language_probabilities,
        )

    def _words(self, state: WindowState) -> tuple[Word, ...]:
        row = state.row
        text = [index for index, token in enumerate(row.tokens) if token < self._tokens.end]
        if not text:
            return ()
        tokens = [row.tokens[index] for index in text]
        attention = np.concatenate(row.attention, axis=1)
        # Lines before `first` are those of the opening, but its last, which made the first token.
        first = attention.shape[1] - row.made
        end = range(len(row.tokens), row.made)  # The line that made <|endoftext|>; none where a bound did.
        lines = [*range(first), *(first + index for index in (*text, *end))]
        # Two feature frames make one step of the encoder.
        rows, steps = token_path(attention[:, lines], first, max(1, math.ceil(state.samples / HOP) // 2))
        return timed_words(
            self._tokens.pieces(tokens, state.written),
            token_starts(rows.tolist(), steps.tolist(), len(tokens)),
            [row.chances[index] for index in text],
            state.samples,
            tokens,
        )


def log_sum(logits: Floats) -> Floats:
    """Logarithm of the sum of exponentials of each row: float32[rows]."""
    peaks = logits.max(1)
    return np.asarray(peaks + np.log(np.exp(logits - peaks[:, None]).sum(1)), np.float32)
