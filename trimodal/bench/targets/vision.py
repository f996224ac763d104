"""Asks for the labels of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimodal.bench.common.samples import batch_of
from trimodal.bench.load.records import Record
from trimodal.bench.targets.taking import Taking, taken
from trimodal.client import Client


@dataclass
class Vision:
    """The vision pipeline, `batch` of `files` (JPEG) in each request."""

    client: Client
    files: Sequence[bytes]
    batch: int = 1
    timeout: float = 60.0
    model: str = "vision"

    async def send(self, number: int) -> Record:
        images = batch_of(self.files, number, self.batch)

        async def ask(taking: Taking) -> None:
            taking.items = self.batch
            await self.client.classify(images, timeout=self.timeout, model=self.model)
            taking.piece()

        return await taken(ask)
