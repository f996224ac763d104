"""Embeds the texts of a batch of requests, with one outcome a request.

A refused text never harms its neighbours.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimodal.embedding.engines.protocol import Embedded, TextEmbedder, open_engine
from trimodal.embedding.settings import EmbeddingSettings
from trimodal.errors import InternalError, InvalidArgument, RequestError
from trimodal.metrics import Metrics, counters
from trimodal.paths import artefact_directory
from trimodal.trace import note
from trimodal.triton.fields import words

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
BATCHES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Texts:
    """The texts of one request, UTF-8. `truncate`: those beyond the model's length are cut, not refused."""

    texts: Sequence[bytes]
    truncate: bool = True


def read_texts(texts: Sequence[bytes], parameters: Mapping[str, Any]) -> Texts:
    """A request of its tensor and its parameters. Raises: InvalidArgument."""
    truncate = parameters.get("truncate", True)
    if not isinstance(truncate, bool):
        raise InvalidArgument("truncate: true or false is needed")
    return Texts(texts, truncate)


class EmbeddingService:
    """Checks the texts of all requests of a batch and embeds the good ones together.

    Attributes:
        checkpoint: SHA-256 of what the engine was built from; "fake".
    """

    def __init__(self, engine: TextEmbedder, settings: EmbeddingSettings, metrics: Metrics) -> None:
        self._engine = engine
        self.checkpoint = engine.checkpoint
        self._settings = settings
        self._seconds = metrics.histogram(
            "trimodal_embedding_seconds", "One run of the embedder", {}, SECONDS
        )
        self._batches = metrics.histogram(
            "trimodal_embedding_batch_size", "Texts in one run of the embedder", {}, BATCHES
        )
        outcomes = ("whole", "truncated", "refused")
        self._texts = counters(
            "trimodal_embedding_texts_total", metrics, "Texts by outcome", "outcome", outcomes
        )

    @classmethod
    def open(cls, version: Path, settings: EmbeddingSettings, metrics: Metrics) -> EmbeddingService:
        """Opens the artefact that `settings` names and runs it once."""
        engine = open_engine(artefact_directory(version, settings.artefact), settings)
        engine.embed(["warm", "warm up " * engine.max_tokens])
        return cls(engine, settings, metrics)

    def embed(self, requests: Sequence[Texts]) -> list[Embedded | RequestError]:
        """For each request the vectors and tokens of its texts, or the error of the first bad one."""
        most = self._settings.max_bytes
        texts: list[str] = []
        parts: dict[int, slice] = {}
        outcomes: list[Embedded | RequestError] = [InternalError("not embedded")] * len(requests)
        for index, request in enumerate(requests):
            try:
                given = request.texts
                good = [words(_name(item, len(given)), data, most) for item, data in enumerate(given)]
            except RequestError as error:
                self._texts["refused"].increment(len(request.texts))
                outcomes[index] = error
                continue
            parts[index] = slice(len(texts), len(texts) + len(good))
            texts += good
        if not texts:
            return outcomes
        started = time.perf_counter()
        embedded = self._engine.embed(texts)
        ended = time.perf_counter()
        self._seconds.observe(ended - started)
        note("embed", started, ended)
        self._batches.observe(len(texts))
        for index, part in parts.items():
            own = Embedded(embedded.vectors[part], embedded.tokens[part])
            outcomes[index] = self._checked(own, truncate=requests[index].truncate)
        return outcomes

    def _checked(self, embedded: Embedded, *, truncate: bool) -> Embedded | RequestError:
        tokens, most = embedded.tokens, self._engine.max_tokens
        fewest, longest = min(tokens), max(tokens)
        if fewest < 1 or (longest > most and not truncate):
            self._texts["refused"].increment(len(tokens))
            name = _name(tokens.index(fewest if fewest < 1 else longest), len(tokens))
            if fewest < 1:
                return InvalidArgument(f"{name}: nothing in it that the model can read")
            return InvalidArgument(f"{name} has {longest} tokens: this model reads {most}; truncate cuts it")
        cut = sum(count > most for count in tokens)
        self._texts["truncated"].increment(cut)
        self._texts["whole"].increment(len(tokens) - cut)
        read = tuple(min(count, most) + self._engine.specials for count in tokens)
        return Embedded(embedded.vectors, read)


def _name(index: int, count: int) -> str:
    return "text_input" if count == 1 else f"text_input[{index}]"
