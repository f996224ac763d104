"""Sends one request and notes when it went and when each response came."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from trimodal.client.transports.base import Request, Tensors, Timeouts, Transport
from trimodal.errors import InternalError


@dataclass(frozen=True)
class Response:
    """Outputs, and when they came: nanoseconds of the client's monotonic clock."""

    received: int
    outputs: Tensors


@dataclass(frozen=True)
class Exchange:
    """A request's time at its client; the last response is the last that brought something."""

    sent: int
    responses: Sequence[Response]

    @property
    def received(self) -> int:
        return self.responses[-1].received


async def exchange(transport: Transport, request: Request, timeouts: Timeouts, *, streamed: bool) -> Exchange:
    """Sends a request and waits for all of its answer.

    Raises:
        RequestError, TransportError: it is refused, ended, or not answered.
    """
    sent = time.monotonic_ns()
    if not streamed:
        outputs = await transport.infer(request, timeouts)
        return Exchange(sent, [Response(time.monotonic_ns(), outputs)])
    found: list[Response] = []
    responses = await transport.stream(request, timeouts)
    try:
        while (outputs_ := await responses.read()) is not None:
            if outputs_:  # the final response of Triton has none
                found.append(Response(time.monotonic_ns(), outputs_))
    except BaseException:
        responses.cancel()
        raise
    if not found:
        raise InternalError(f"{request.model} ended its answer without a response")
    return Exchange(sent, found)
