"""Asks for the labels of images."""

from __future__ import annotations

from collections.abc import Sequence

from trimodal.bench.common.samples import batch_of
from trimodal.bench.load.records import Record
from trimodal.bench.targets.taking import Taking, taken
from trimodal.client import Client


class Vision:
    """The vision pipeline, `batch` of `files` (JPEG) in each request."""

    def __init__(
        self,
        client: Client,
        files: Sequence[bytes],
        *,
        batch: int = 1,
        timeout: float = 60.0,
        model: str = "vision",
    ) -> None:
        self._client = client
        self._files = files
        self._batch = batch
        self._timeout = timeout
        self._model = model

    async def send(self, number: int) -> Record:
        images = batch_of(self._files, number, self._batch)

        async def ask(taking: Taking) -> None:
            taking.items = self._batch
            await self._client.classify(images, timeout=self._timeout, model=self._model)
            taking.piece()

        return await taken(ask)
