"""Asks a served language model over gRPC, and streams its answer."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

from trimodal.bench.load.records import Record
from trimodal.bench.targets.questions import Source
from trimodal.bench.targets.taking import Taking, taken
from trimodal.client import Client, Delta
from trimodal.client.streams.answer import BaseStream
from trimodal.client.values import Note


async def follow(stream: BaseStream[Any], taking: Taking, cancel_after: int) -> None:
    """Takes the deltas of an answer in; its client leaves after so many with text, 0: never."""
    async for item in stream:
        if isinstance(item, Delta) and item.text:
            taking.piece()
        usage = stream.usage
        taking.input_tokens, taking.cached_tokens = usage.prompt, usage.cached
        taking.output_tokens = usage.completion
        if cancel_after and len(taking.pieces) >= cancel_after:
            if not stream.finish_reason:
                taking.cancelled = True
                stream.cancel()
            return


class GrpcLlm:
    """The model over gRPC.

    Args:
        options: of every request, as `Client.stream` takes them.

    Attributes:
        notes: number of a request that was answered → how its answer came about.
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
        self.notes: dict[int, Note] = {}

    async def send(self, number: int) -> Record:
        question = self._questions.at(number)

        async def ask(taking: Taking) -> None:
            options = self._options | ({"tier": question.tier} if question.tier else {})
            stream = self._client.stream(
                question.text,
                max_tokens=question.max_tokens,
                timeout=self._timeout,
                model=self._model,
                **options,
            )
            await follow(stream, taking, question.cancel_after)
            if not taking.cancelled:
                self.notes[number] = stream.note

        return await taken(ask)

    def asking(self, questions: Source, options: Mapping[str, Any] | None = None) -> GrpcLlm:
        """The same, with other questions and further options."""
        other = copy(self)
        other._questions, other._options, other.notes = questions, self._options | dict(options or {}), {}
        return other

    async def count(self, text: str) -> int:
        """Tokens of the prompt that the model makes of this text."""
        stream = self._client.stream(text, max_tokens=1, timeout=self._timeout, model=self._model)
        return (await stream.answer()).usage.prompt
