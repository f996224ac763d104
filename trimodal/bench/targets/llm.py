"""Asks a served language model over gRPC, and streams its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trimodal.bench.load.records import Record
from trimodal.bench.targets.questions import Source
from trimodal.bench.targets.taking import taken
from trimodal.client import Client, Delta
from trimodal.client.streams.answer import BaseStream


async def follow(stream: BaseStream[Any], record: Record) -> None:
    """Takes the deltas of an answer in."""
    async for item in stream:
        if isinstance(item, Delta) and item.text:
            record.piece()
        usage = stream.usage
        record.input_tokens, record.cached_tokens = usage.prompt, usage.cached
        record.output_tokens = usage.completion


@dataclass
class GrpcLlm:
    """The model over gRPC.

    Attributes:
        options: of every request, as `Client.stream` takes them.
    """

    client: Client
    questions: Source
    model: str = "llm"
    timeout: float = 60.0
    options: Mapping[str, Any] = field(default_factory=dict)

    async def send(self, number: int) -> Record:
        question = self.questions(number)

        async def ask(record: Record) -> None:
            stream = self.client.stream(
                question.text,
                max_tokens=question.max_tokens,
                timeout=self.timeout,
                model=self.model,
                **self.options,
            )
            await follow(stream, record)

        return await taken(ask)

    def asking(self, questions: Source) -> GrpcLlm:
        """The same, with other questions."""
        return replace(self, questions=questions)

    async def count(self, text: str) -> int:
        """Tokens of the prompt that the model makes of this text."""
        stream = self.client.stream(text, max_tokens=1, timeout=self.timeout, model=self.model)
        return (await stream.answer()).usage.prompt
