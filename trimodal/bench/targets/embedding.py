"""Asks for the vectors of texts."""

from __future__ import annotations

from dataclasses import dataclass

from trimodal.bench.load.records import Record
from trimodal.bench.targets.questions import Source
from trimodal.bench.targets.taking import Taking, taken
from trimodal.client import Client


@dataclass
class Embedding:
    """The embedding model, a text in each request."""

    client: Client
    questions: Source
    timeout: float = 60.0
    model: str = "embedding"

    async def send(self, number: int) -> Record:
        text = self.questions.at(number).text

        async def ask(taking: Taking) -> None:
            await self.client.embed([text], timeout=self.timeout, model=self.model)
            taking.piece()

        return await taken(ask)
