"""Embeds the texts of a batch of requests, with one outcome a request.

A refused text never harms its neighbours.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from trimodal.embedding.engines.protocol import TextEmbedder, Vectors, open_engine
from trimodal.embedding.settings import EmbeddingSettings
from trimodal.errors import InternalError, InvalidArgument, RequestError
from trimodal.metrics import Metrics, counters
from trimodal.triton.fields import decode

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
BATCHES = (1, 2, 4, 8, 16, 32, 64)


class EmbeddingService:
    """Checks the texts of all requests of a batch and embeds the good ones together."""

    def __init__(self, engine: TextEmbedder, settings: EmbeddingSettings, metrics: Metrics) -> None:
        self._engine = engine
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
        engine = open_engine((version / settings.artefact).resolve(), settings)
        engine.embed(["warm", "warm up " * engine.max_tokens])
        return cls(engine, settings, metrics)

    def embed(self, requests: Sequence[Sequence[bytes]]) -> list[Vectors | RequestError]:
        """Vectors float32[B, d] for each request of B UTF-8 texts, or the error of its first bad text."""
        texts: list[str] = []
        parts: dict[int, slice] = {}
        outcomes: list[Vectors | RequestError] = [InternalError("not embedded")] * len(requests)
        for index, request in enumerate(requests):
            try:
                good = [self._text(data, _name(item, len(request))) for item, data in enumerate(request)]
            except RequestError as error:
                self._texts["refused"].increment(len(request))
                outcomes[index] = error
                continue
            parts[index] = slice(len(texts), len(texts) + len(good))
            texts += good
        if not texts:
            return outcomes
        started = time.perf_counter()
        embedded = self._engine.embed(texts)
        self._seconds.observe(time.perf_counter() - started)
        self._batches.observe(len(texts))
        for index, part in parts.items():
            outcomes[index] = self._checked(embedded.vectors[part], embedded.tokens[part])
        return outcomes

    def _checked(self, vectors: Vectors, tokens: Sequence[int]) -> Vectors | RequestError:
        if min(tokens) < 1:
            self._texts["refused"].increment(len(tokens))
            name = _name(tokens.index(min(tokens)), len(tokens))
            return InvalidArgument(f"{name}: nothing in it that the model can read")
        cut = sum(count > self._engine.max_tokens for count in tokens)
        self._texts["truncated"].increment(cut)
        self._texts["whole"].increment(len(tokens) - cut)
        return vectors

    def _text(self, data: bytes, name: str) -> str:
        if len(data) > self._settings.max_bytes:
            raise InvalidArgument(
                f"{name}: {len(data)} bytes; at most {self._settings.max_bytes} are accepted"
            )
        text = decode(name, data)
        if not text.strip():
            raise InvalidArgument(f"{name}: empty; at least one word is needed")
        return text


def _name(index: int, count: int) -> str:
    return "text_input" if count == 1 else f"text_input[{index}]"
