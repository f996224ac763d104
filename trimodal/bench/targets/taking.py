"""Takes the record of one request while it runs, and turns its end into an outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from trimodal.bench.load.generator import Send
from trimodal.bench.load.records import OK, TIMEOUT, UNREACHABLE, Record
from trimodal.client.errors import ConnectError, ConnectionLost, Timeout
from trimodal.errors import Cancelled, RequestError, ServerError, TrimodalError


async def taken(ask: Callable[[Record], Awaitable[object]]) -> Record:
    """Runs one request from its sending to its end; `ask` fills in what comes meanwhile."""
    record = Record.begun()
    try:
        await ask(record)
    except TrimodalError as error:
        record.outcome, record.error = outcome_of(error), str(error)
    record.ended = asyncio.get_running_loop().time()
    return record


def sender(ask: Callable[[Record, int], Awaitable[object]]) -> Send:
    """What sends request `number` by `ask`; what goes wrong is an outcome."""
    return lambda number: taken(lambda record: ask(record, number))


def outcome_of(error: TrimodalError) -> str:
    """Names an error as a record does."""
    if isinstance(error, Timeout):
        return TIMEOUT
    if isinstance(error, ConnectError | ConnectionLost):
        return UNREACHABLE
    if isinstance(error, Cancelled):
        return "cancelled_by_server"
    return error.code.lower() if isinstance(error, RequestError) else "protocol"


async def check(send: Send) -> Record:
    """Sends one request before the load. Raises: ServerError, Timeout: it is not answered; says why."""
    record = await send(0)
    if record.outcome == TIMEOUT:
        raise Timeout(record.error)
    if record.outcome != OK:
        raise ServerError(record.error or record.outcome)
    return record
