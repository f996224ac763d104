"""Runs the engine of the language model alone, with the served model's settings and tokenizer.

It is in a process of its own, as when it is served; its tokens arrive over the pipe that the service reads.
TTFT is to the first token.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from trimodal.bench.load.generator import Send
from trimodal.bench.load.records import Record
from trimodal.bench.targets.questions import Source
from trimodal.bench.targets.taking import outcome_of
from trimodal.client.async_iteration import wait_within
from trimodal.errors import InvalidArgument, ServerError
from trimodal.llm.engine_core.client import start_process
from trimodal.llm.engines.protocol import EngineRequest, Output, Sampling
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tokenizer import ByteTokenizer, CheckpointTokenizer, Tokenizer
from trimodal.repository import Model

_LIMIT_S = 600.0


def served_settings(model: Model) -> LlmSettings:
    """Returns the settings that the served model has. Raises: SettingsError."""
    return model.settings(LlmSettings, {"version_directory": str(model.version_directory)})


class BareEngine:
    """The engine's process, driven directly; for one event loop at a time."""

    def __init__(self, settings: LlmSettings) -> None:
        self._settings = settings
        self._tokenizer: Tokenizer = (
            ByteTokenizer() if settings.engine == "fake" else CheckpointTokenizer(settings.artefact_directory)
        )
        self._client = start_process(settings)
        self._numbers = itertools.count()
        # Number of a request under way → takes when a step came and what it made; None: the process died.
        self._pending: dict[int, Callable[[tuple[float, Output] | None], object]] = {}
        self._died = False
        threading.Thread(target=self._receive, name="bench-engine", daemon=True).start()

    def close(self) -> None:
        self._client.close()

    def sender(self, questions: Source) -> Send:
        """What asks these questions; their ids are made as the served model does."""

        async def send(number: int) -> Record:
            question = questions(number)
            request = GenerationRequest(question.text, None, Sampling(max_tokens=1))
            ids = request.token_ids(self._tokenizer, self._settings.apply_chat_template)
            return await self._ask(ids, question.max_tokens)

        return send

    async def _ask(self, prompt: list[int], max_tokens: int) -> Record:
        """One answer, greedily. Raises: ServerError: the engine failed on it, or died."""
        loop = asyncio.get_running_loop()
        outputs: asyncio.Queue[tuple[float, Output] | None] = asyncio.Queue()
        id = next(self._numbers)
        self._pending[id] = lambda step: loop.call_soon_threadsafe(outputs.put_nowait, step)
        record = Record.begun()
        record.input_tokens = len(prompt)
        self._client.add(EngineRequest(id, prompt, Sampling(max_tokens)))
        try:
            while True:
                if self._died:
                    raise ServerError("the bare engine's process died")
                step = await wait_within(outputs.get(), _LIMIT_S)
                if step is None:
                    continue
                at, output = step
                if output.token_ids:
                    record.pieces.append(at)
                    record.output_tokens += len(output.token_ids)
                if output.finish_reason == "error":
                    raise ServerError(output.error)
                if output.finish_reason == "refused":
                    record.outcome, record.error = outcome_of(InvalidArgument(output.error)), output.error
                if output.finish_reason:
                    del self._pending[id]
                    record.ended = record.pieces[-1] if record.pieces else at
                    return record
        except asyncio.TimeoutError:
            raise ServerError(f"the bare engine made no token for {_LIMIT_S:g} s") from None
        finally:
            if self._pending.pop(id, None):  # given up: it would go on beside the next side's round
                self._client.cancel(id)

    def _receive(self) -> None:
        while stepped := self._client.receive():
            # The event loop's clock on Linux, read where the step came in.
            at = time.monotonic()
            for output in stepped.outputs:
                self._tell(output.id, (at, output))
        self._died = True
        for id in list(self._pending):
            self._tell(id, None)

    def _tell(self, id: int, step: tuple[float, Output] | None) -> None:
        if tell := self._pending.get(id):
            with suppress(RuntimeError):  # its loop is closed: nobody waits
                tell(step)
