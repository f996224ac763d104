"""Runs the engine of the language model alone, with the served model's settings and tokenizer.

It is in a process of its own, as when it is served; its tokens arrive over the pipe that the service reads.
TTFT is to the first token.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trimodal.bench.common.serving import settings_of
from trimodal.bench.load.records import Record
from trimodal.errors import ServerError
from trimodal.llm.engine_core.client import start_process
from trimodal.llm.engines.protocol import EngineRequest, Sampling
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tokenizer import ByteTokenizer, CheckpointTokenizer
from trimodal.repository import Model

_LIMIT_S = 600.0


def served_settings(model: Model) -> LlmSettings:
    """Returns the settings that the served model has. Raises: SettingsError."""
    return settings_of(LlmSettings, model, {"version_directory": str(model.version_directory)})


def encoder(settings: LlmSettings) -> Callable[[str], list[int]]:
    """Makes the ids of a prompt, as the served model does."""
    tokenizer = (
        ByteTokenizer() if settings.engine == "fake" else CheckpointTokenizer(settings.artefact_directory)
    )

    def encode(text: str) -> list[int]:
        request = GenerationRequest(text, None, Sampling(max_tokens=1))
        return request.token_ids(tokenizer, settings.apply_chat_template)

    return encode


class BareEngine:
    """The engine's process, driven directly; for one event loop at a time."""

    def __init__(self, settings: LlmSettings) -> None:
        self._client = start_process(settings)
        self._numbers = itertools.count()
        self._pending: dict[int, _Pending] = {}
        self._died = False
        threading.Thread(target=self._receive, name="bench-engine", daemon=True).start()

    def close(self) -> None:
        self._client.close()

    async def ask(self, prompt: list[int], max_tokens: int) -> Record:
        """One answer, greedily. Raises: ServerError: the engine failed on it, or died."""
        loop = asyncio.get_running_loop()
        pending = _Pending(loop, loop.create_future())
        id = next(self._numbers)
        self._pending[id] = pending
        sent = loop.time()
        self._client.add(EngineRequest(id, prompt, Sampling(max_tokens)))
        try:
            if self._died:
                raise ServerError("the bare engine's process died")
            await asyncio.wait_for(pending.done, _LIMIT_S)
        except asyncio.TimeoutError:
            raise ServerError(f"the bare engine did not answer within {_LIMIT_S:g} s") from None
        finally:
            self._pending.pop(id, None)
        return Record(
            number=0,
            due=sent,
            sent=sent,
            pieces=tuple(pending.pieces),
            ended=pending.pieces[-1] if pending.pieces else loop.time(),
            input_tokens=len(prompt),
            output_tokens=pending.tokens,
        )

    def _receive(self) -> None:
        while stepped := self._client.receive():
            # The event loop's clock on Linux, read where the step came in.
            at = time.monotonic()
            for output in stepped.outputs:
                pending = self._pending.get(output.id)
                if pending is None:
                    continue
                if output.token_ids:
                    pending.pieces.append(at)
                    pending.tokens += len(output.token_ids)
                if output.finish_reason:
                    pending.end(output.error if output.finish_reason == "error" else "")
        self._died = True
        for pending in list(self._pending.values()):
            pending.end("the bare engine's process died")


@dataclass
class _Pending:
    """A request under way: filled in by the receiving thread, awaited in `loop`."""

    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]
    pieces: list[float] = field(default_factory=list)
    tokens: int = 0

    def end(self, error: str) -> None:
        with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits
            self.loop.call_soon_threadsafe(self._end, error)

    def _end(self, error: str) -> None:
        if self.done.done():
            return
        if error:
            self.done.set_exception(ServerError(error))
        else:
            self.done.set_result(None)
