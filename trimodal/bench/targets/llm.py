"""Asks a served language model over gRPC, and streams its answer."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

from trimodal.bench.load.records import Record
from trimodal.bench.targets.questions import Source
from trimodal.bench.targets.taking import Taking, taken
from trimodal.client import Client


class GrpcLlm:
    """The model over gRPC.

    Args:
        options: of every request, as `Client.stream` takes them.

    Attributes:
        hits: number of a request → how the answer cache answered it; those that it did not are not in it.
    """

    def __init__(
        self,
        client: Client,
        questions: Source,
        *,
        model: str = "llm",
        timeout: float = 60.0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._client = client
        self._questions = questions
        self._model = model
        self._timeout = timeout
        self._options = dict(options or {})
        self.hits: dict[int, str] = {}

    async def send(self, number: int) -> Record:
        question = self._questions.at(number)

        async def ask(taking: Taking) -> None:
            stream = self._client.stream(
                question.text,
                max_tokens=question.max_tokens,
                timeout=self._timeout,
                model=self._model,
                **self._options,
            )
            async for delta in stream:
                if delta.text:
                    taking.piece()
                usage = stream.usage
                taking.input_tokens, taking.cached_tokens = usage.prompt, usage.cached
                taking.output_tokens = usage.completion
                if question.cancel_after and len(taking.pieces) >= question.cancel_after:
                    if not delta.finish_reason:
                        taking.cancelled = True
                        stream.cancel()
                    return
            if stream.note.cache:
                self.hits[number] = stream.note.cache

        return await taken(ask)

    def asking(self, questions: Source) -> GrpcLlm:
        """The same, with other questions."""
        other = copy(self)
        other._questions, other.hits = questions, {}
        return other

    async def count(self, text: str) -> int:
        """Tokens of the prompt that the model makes of this text."""
        stream = self._client.stream(text, max_tokens=1, timeout=self._timeout, model=self._model)
        return (await stream.answer()).usage.prompt
