"""Takes the times of one request while it runs, and turns its end into an outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from trimodal.bench.load.records import OK, TIMEOUT, UNREACHABLE, Record
from trimodal.client.errors import ConnectError, ConnectionLost, Timeout
from trimodal.errors import Cancelled, RequestError, ServerError, TrimodalError


class Target(Protocol):
    """What load is sent to."""

    async def send(self, number: int) -> Record:
        """Sends request `number` and waits for its end; what goes wrong is an outcome."""


class Taking:
    """Times and figures of one request, filled in as they come. It is sent when this is made."""

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self.sent = self._clock()
        self.pieces: list[float] = []
        self.lags: list[float] = []
        self.input_tokens = self.output_tokens = self.cached_tokens = 0
        self.items = 1
        self.audio_s = 0.0
        self.cache = self.text = ""

    def piece(self) -> None:
        """Notes text, words or a whole answer that has just come."""
        self.pieces.append(self._clock())

    def record(self, outcome: str = OK, error: str = "") -> Record:
        """The request has ended now."""
        return Record(
            number=0,
            due=self.sent,
            sent=self.sent,
            pieces=tuple(self.pieces),
            ended=self._clock(),
            outcome=outcome,
            error=error,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cached_tokens=self.cached_tokens,
            items=self.items,
            audio_s=self.audio_s,
            lags=tuple(self.lags),
            cache=self.cache,
            text=self.text,
        )


async def taken(ask: Callable[[Taking], Awaitable[object]]) -> Record:
    """Runs one request from its sending to its end."""
    taking = Taking()
    try:
        await ask(taking)
    except TrimodalError as error:
        return taking.record(outcome_of(error), str(error))
    return taking.record()


def outcome_of(error: TrimodalError) -> str:
    """Names an error as a record does."""
    if isinstance(error, Timeout):
        return TIMEOUT
    if isinstance(error, ConnectError | ConnectionLost):
        return UNREACHABLE
    if isinstance(error, Cancelled):
        return "cancelled_by_server"
    return error.code.lower() if isinstance(error, RequestError) else "protocol"


async def check(target: Target) -> Record:
    """Sends one request before the load. Raises: ServerError: it is not answered; says why."""
    record = await target.send(0)
    if record.outcome != OK:
        raise ServerError(record.error or record.outcome)
    return record
