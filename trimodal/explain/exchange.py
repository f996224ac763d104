"""Sends one request, notes when it went and each response came, and puts the server's times beside that."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from trimodal.client.transports.base import Request, Tensors, Timeouts, Transport
from trimodal.errors import InternalError
from trimodal.trace import Span, shifted

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


def on_one_clock(done: Exchange, spans: list[Span]) -> list[Span]:
    """A server's spans on the client's clock: those of another machine are moved to end with the answer.

    Clocks of two machines count from their starts and differ by hours or days, so what seems to lie within
    the exchange was told by the same clock.
    """
    begins, ends = ([one[name] for one in spans] for name in ("begin", "end"))
    if not spans or (done.sent - _SLACK <= min(begins) and max(ends) <= done.received + _SLACK):
        return spans
    return shifted(spans, done.received / 1e9)
