"""Asks for the labels of images, for the vectors of texts, and the assistant about images and speech."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.bench.common.samples import batch_of
from trimodal.bench.load.records import Record
from trimodal.bench.targets.llm import follow
from trimodal.bench.targets.questions import Source
from trimodal.bench.targets.taking import taken
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

        async def ask(record: Record) -> None:
            record.items = self.batch
            await self.client.classify(images, timeout=self.timeout, model=self.model)
            record.piece()

        return await taken(ask)


@dataclass
class Embedding:
    """The embedding model, a text in each request."""

    client: Client
    questions: Source
    timeout: float = 60.0
    model: str = "embedding"

    async def send(self, number: int) -> Record:
        text = self.questions(number).text

        async def ask(record: Record) -> None:
            await self.client.embed([text], timeout=self.timeout, model=self.model)
            record.piece()

        return await taken(ask)


@dataclass
class Assistant:
    """The assistant: every question has text, and an image or a recording where such are given.

    TTFT is to the first text of the answer, after what was heard and seen.
    """

    client: Client
    questions: Source
    images: Sequence[bytes] = ()
    recordings: Sequence[Samples] = ()
    timeout: float = 60.0
    model: str = "assistant"

    async def send(self, number: int) -> Record:
        question = self.questions(number)
        image = self.images[number % len(self.images)] if self.images else None
        audio = self.recordings[number % len(self.recordings)] if self.recordings else None

        async def ask(record: Record) -> None:
            record.audio_s = len(audio) / SAMPLE_RATE if audio is not None else 0.0
            stream = self.client.ask(
                question.text,
                image=image,
                audio=audio,
                timeout=self.timeout,
                model=self.model,
                max_tokens=question.max_tokens,
            )
            await follow(stream, record)

        return await taken(ask)
