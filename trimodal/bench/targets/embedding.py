"""Asks for the vectors of texts."""

from __future__ import annotations

from trimodal.bench.load.records import Record
from trimodal.bench.targets.questions import Source
from trimodal.bench.targets.taking import Taking, taken
from trimodal.client import Client


class Embedding:
    """The embedding model, a text in each request."""

    def __init__(
        self, client: Client, questions: Source, *, timeout: float = 60.0, model: str = "embedding"
    ) -> None:
        self._client = client
        self._questions = questions
        self._timeout = timeout
        self._model = model

    async def send(self, number: int) -> Record:
        text = self._questions.at(number).text

        async def ask(taking: Taking) -> None:
            await self._client.embed([text], timeout=self._timeout, model=self._model)
            taking.piece()

        return await taken(ask)
