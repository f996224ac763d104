"""Holds what all calls of a client share: the transport, its timeouts, readiness, and closing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trimodal.client.transports.base import Request, Responses, Tensors, Timeouts, Transport
from trimodal.client.values import Model

if TYPE_CHECKING:
    from typing_extensions import Self


class Connection:
    """One server, as `Client` describes it."""

    def __init__(
        self,
        url: str = "127.0.0.1:8001",
        *,
        timeouts: Timeouts | None = None,
        connections: int = 2,
        transport: Transport | None = None,
    ) -> None:
        self._timeouts = timeouts or Timeouts()
        if transport is None:
            from trimodal.client.transports.grpc import GrpcTransport

            transport = GrpcTransport(url, self._timeouts, connections)
        self._transport = transport
        self._batch_sizes: dict[str, int] = {}

    async def ready(self, model: str = "") -> bool:
        """Whether the server, or one model, takes requests; False also when no server answers."""
        return await self._transport.ready(model, self._timeouts)

    async def models(self) -> list[Model]:
        """Lists the models that are ready."""
        return await self._transport.models(self._timeouts)

    async def max_batch_size(self, model: str) -> int:
        """Returns the most items in one request to `model`; 0: it takes no batches. Asked once."""
        if model not in self._batch_sizes:
            self._batch_sizes[model] = await self._transport.max_batch_size(model, self._timeouts)
        return self._batch_sizes[model]

    async def aclose(self) -> None:
        """Closes the connections; what still runs is cancelled."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _within(self, timeout: float | None) -> Timeouts:
        return self._timeouts if timeout is None else replace(self._timeouts, total=timeout)

    async def _infer(self, model: str, inputs: Tensors, timeout: float | None) -> Tensors:
        return await self._transport.infer(Request(model, inputs), self._within(timeout))

    async def _stream(self, request: Request, timeout: float | None) -> Responses:
        return await self._transport.stream(request, self._within(timeout))
