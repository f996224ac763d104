"""Embeds the texts of a batch of requests, with one outcome a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimodal.embedding.engines.protocol import Embedded, TextEmbedder, open_engine
from trimodal.embedding.settings import EmbeddingSettings
from trimodal.errors import InvalidArgument, RequestError
from trimodal.metrics import Metrics
from trimodal.paths import artefact_directory
from trimodal.runtimes.shared_runs import SharedRuns
from trimodal.triton.fields import words


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
        self._most = settings.max_bytes
        self._runs = SharedRuns(
            metrics, "trimodal_embedding", "the embedder", "Texts", "whole", "truncated", span="embed"
        )

    @classmethod
    def open(cls, version: Path, settings: EmbeddingSettings, metrics: Metrics) -> EmbeddingService:
        """Opens the artefact that `settings` names and runs it once."""
        engine = open_engine(artefact_directory(version, settings.artefact), settings)
        engine.embed(["warm", "warm up " * engine.max_tokens])
        return cls(engine, settings, metrics)

    def embed(self, requests: Sequence[Texts]) -> list[Embedded | RequestError]:
        """For each request the vectors and tokens of its texts, or the error of the first bad one."""
        runs = self._runs.run(requests, lambda one: len(one.texts), self._read, self._engine.embed)
        return [
            one if isinstance(one, RequestError) else self._checked(one, truncate=request.truncate)
            for one, request in zip(runs, requests, strict=True)
        ]

    def _read(self, request: Texts) -> list[str]:
        count = len(request.texts)
        return [words(_name(item, count), data, self._most) for item, data in enumerate(request.texts)]

    def _checked(self, embedded: Embedded, *, truncate: bool) -> Embedded | RequestError:
        tokens, most = embedded.tokens, self._engine.max_tokens
        fewest, longest = min(tokens), max(tokens)
        if fewest < 1 or (longest > most and not truncate):
            self._runs.outcomes["refused"].increment(len(tokens))
            name = _name(tokens.index(fewest if fewest < 1 else longest), len(tokens))
            if fewest < 1:
                return InvalidArgument(f"{name}: nothing in it that the model can read")
            return InvalidArgument(f"{name} has {longest} tokens: this model reads {most}; truncate cuts it")
        cut = sum(count > most for count in tokens)
        self._runs.outcomes["truncated"].increment(cut)
        self._runs.outcomes["whole"].increment(len(tokens) - cut)
        read = tuple(min(count, most) + self._engine.specials for count in tokens)
        return Embedded(embedded.vectors, read)


def _name(index: int, count: int) -> str:
    return "text_input" if count == 1 else f"text_input[{index}]"
