"""Asks the assistant about images, in text or in speech, and streams its answer."""

from __future__ import annotations

from collections.abc import Sequence

from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.bench.load.records import Record
from trimodal.bench.targets.llm import follow
from trimodal.bench.targets.questions import Source
from trimodal.bench.targets.taking import Taking, taken
from trimodal.client import Client


class Assistant:
    """The assistant: every question has text, and an image or a recording where such are given.

    TTFT is to the first text of the answer, after what was heard and seen.
    """

    def __init__(
        self,
        client: Client,
        questions: Source,
        *,
        images: Sequence[bytes] = (),
        recordings: Sequence[Samples] = (),
        timeout: float = 60.0,
        model: str = "assistant",
    ) -> None:
        self._client = client
        self._questions = questions
        self._images = images
        self._recordings = recordings
        self._timeout = timeout
        self._model = model

    async def send(self, number: int) -> Record:
        question = self._questions.at(number)
        image = self._images[number % len(self._images)] if self._images else None
        audio = self._recordings[number % len(self._recordings)] if self._recordings else None

        async def ask(taking: Taking) -> None:
            taking.audio_s = len(audio) / SAMPLE_RATE if audio is not None else 0.0
            stream = self._client.ask(
                question.text,
                image=image,
                audio=audio,
                timeout=self._timeout,
                model=self._model,
                max_tokens=question.max_tokens,
            )
            await follow(stream, taking, question.cancel_after)

        return await taken(ask)
