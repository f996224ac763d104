"""Sends one request, notes when it went and each response came, and compares the server's clock with that."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from trimodal.client.transports.base import Request, Tensors, Timeouts, Transport
from trimodal.errors import InternalError

# Nanoseconds by which times of one clock may seem out of order, as they are taken before or after.
_SLACK = 50_000


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


def clock_offset(
    sent: int, events: Sequence[int], arrivals: Sequence[tuple[int, int]]
) -> tuple[int, int] | None:
    """Nanoseconds that the server's clock is ahead, and by how much that may be wrong; None: one clock.

    As NTP does it: what the server did lies between the client's sending and its receiving, so the offset
    lies between two bounds; the middle of them is taken. Clocks of two machines count from their starts and
    differ by hours or days, so bounds that allow 0 mean the same clock.

    Args:
        events: times of the server. arrivals: when it made something, and when the client had that.
    """
    most = min(events) - sent
    least = max(made - received for made, received in arrivals)
    if least - _SLACK <= 0 <= most + _SLACK:
        return None
    return (least + most) // 2, abs(most - least) // 2
