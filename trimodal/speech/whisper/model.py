"""Runs Whisper over the two graphs of any runtime: a batch of windows becomes timed words.

Word times come from the attention of decoding itself, so no second pass aligns them. With FP32 graphs a
window's result does not depend on its neighbours; in fewer bits a close decision may change.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from trimodal.audio.values import SAMPLE_RATE, Word
from trimodal.speech.values import Recognition, Window, batches
from trimodal.speech.whisper.alignment import token_path
from trimodal.speech.whisper.artefact import GenerationSpec, SpeechShapes
from trimodal.speech.whisper.features import HOP, log_mel_batch, smallest_context
from trimodal.speech.whisper.graphs import Floats, Graphs, log_sum
from trimodal.speech.whisper.greedy import Greedy, Row
from trimodal.speech.whisper.tokens import WhisperTokens
from trimodal.speech.whisper.word_timestamps import compression_ratio, most_tokens, timed_words, token_starts


@dataclass(slots=True)
class Heard:
    """A window on its way through a batch; `opening` are the tokens of the decoder's next run."""

    window: Window
    row: Row
    opening: list[int]
    language: str = ""
    no_speech: float = 0.0

    @property
    def samples(self) -> int:
        return len(self.window.samples)

    @property
    def written(self) -> str:
        """The language of its text."""
        return self.window.written_in(self.language)

    @property
    def made(self) -> int:
        """Tokens, <|endoftext|> with them unless a bound ended the text: a run each, after the opening's."""
        return len(self.row.attention) - 1


class GraphWhisper:
    """One model and its vocabulary. Calls may come from several threads."""

    def __init__(
        self,
        graphs: Graphs,
        tokens: WhisperTokens,
        shapes: SpeechShapes,
        spec: GenerationSpec,
        *,
        max_batch: int,
        one_at_a_time: bool = False,
    ) -> None:
        """`one_at_a_time`: the graphs have one set of buffers, so batches of several threads take turns."""
        self._turn = threading.Lock() if one_at_a_time else nullcontext()
        self._graphs = graphs
        self._tokens = tokens
        self._shapes = shapes
        self._max_batch = max_batch
        self._greedy = Greedy(
            end=tokens.end,
            never=[*spec.suppressed, *tokens.never_made()],
            not_first=spec.suppressed_first,
            positions=shapes.positions,
        )
        self.contexts_s = shapes.contexts_s
        self.languages = tuple(tokens.languages) or ("en",)

    def recognise(self, windows: Sequence[Window], temperature: float = 0.0) -> list[Recognition]:
        """What is heard in each window, in order; above temperature 0 drawn with one fixed seed a window."""
        all_heard = [self._prepared(window) for window in windows]
        for batch in batches(
            all_heard,
            lambda heard: (smallest_context(self.contexts_s, heard.samples), len(heard.opening)),
            self._max_batch,
        ):
            self._run(batch, temperature)
        return [self._recognition(heard) for heard in all_heard]

    def close(self) -> None:
        """Frees the weights."""
        self._graphs.close()

    def _prepared(self, window: Window) -> Heard:
        room = self._shapes.positions // 2 - 1  # for what was said before, as openai-whisper allows
        prompt = self._tokens.prompt(self.languages[0], window.prompt, room)
        # What comes after <|startoftranscript|> waits for the language.
        opening = prompt[: prompt.index(self._tokens.start) + 1]
        return Heard(window, Row(most_tokens=0), opening)  # the bound, too

    def _run(self, batch: list[Heard], temperature: float) -> None:
        """Everything for windows of one context and one length of what was said before."""
        context_s = smallest_context(self.contexts_s, max(heard.samples for heard in batch))
        features = log_mel_batch(
            [heard.window.samples for heard in batch], context_s, self._shapes.mel_bins, self._shapes.padding
        )
        with self._turn:
            decoding = self._graphs.start(features)
            scores, attention = decoding.step(np.array([heard.opening for heard in batch], np.int64))
            self._begin(batch, scores.numpy(), attention)
            scores, attention = decoding.step(np.array([heard.opening for heard in batch], np.int64))
            self._greedy.decode([heard.row for heard in batch], decoding, scores, attention, temperature)

    def _begin(self, batch: list[Heard], logits: Floats, attention: Floats) -> None:
        """After <|startoftranscript|>: does anybody speak, and in which language to go on."""
        silent = np.exp(logits[:, self._tokens.no_speech] - log_sum(logits))
        codes, ids = list(self._tokens.languages), list(self._tokens.languages.values())
        for index, heard in enumerate(batch):
            heard.no_speech = min(float(silent[index]), 1.0)
            heard.row.attention.append(attention[index, :, -1:])
            heard.language = heard.window.language
            if not heard.language:
                heard.language = codes[int(logits[index, ids].argmax())] if codes else self.languages[0]
            heard.row.most_tokens = most_tokens(heard.samples / SAMPLE_RATE, heard.written)
            start = self._tokens.start_sequence(heard.language, heard.window.translate)
            heard.opening = [*start[1:], self._tokens.no_timestamps]

    def _recognition(self, heard: Heard) -> Recognition:
        words = self._words(heard)
        return Recognition(
            words=words,
            language=heard.language,
            no_speech_probability=heard.no_speech,
            average_log_probability=heard.row.log_probability / heard.made,
            compression_ratio=compression_ratio("".join(word.text for word in words)),
        )

    def _words(self, heard: Heard) -> tuple[Word, ...]:
        row = heard.row
        text = [index for index, token in enumerate(row.tokens) if token < self._tokens.end]
        if not text:
            return ()
        tokens = [row.tokens[index] for index in text]
        attention = np.concatenate(row.attention, axis=1)
        # Lines before `first` are those of the opening, but its last, which made the first token.
        first = attention.shape[1] - heard.made
        end = range(len(row.tokens), heard.made)  # The line that made <|endoftext|>; none where a bound did.
        lines = [*range(first), *(first + index for index in (*text, *end))]
        # Two feature frames make one step of the encoder.
        rows, steps = token_path(attention[:, lines], first, max(1, math.ceil(heard.samples / HOP) // 2))
        return timed_words(
            self._tokens.pieces(tokens, heard.written),
            token_starts(rows.tolist(), steps.tolist(), len(tokens)),
            [row.chances[index] for index in text],
            heard.samples,
        )
