"""Adds gRPC metadata to every request of another transport."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trimodal.client.transports.base import Request, Responses, Tensors, Timeouts, Transport
from trimodal.client.values import Model


class WithMetadata:
    """A transport over another one, which stays its owner's to close."""

    def __init__(self, transport: Transport, metadata: Mapping[str, str]) -> None:
        self._transport = transport
        self._metadata = metadata

    async def infer(self, request: Request, timeouts: Timeouts) -> Tensors:
        return await self._transport.infer(self._marked(request), timeouts)

    async def stream(self, request: Request, timeouts: Timeouts) -> Responses:
        return await self._transport.stream(self._marked(request), timeouts)

    async def ready(self, model: str, timeouts: Timeouts) -> bool:
        return await self._transport.ready(model, timeouts)

    async def models(self, timeouts: Timeouts) -> list[Model]:
        return await self._transport.models(timeouts)

    async def max_batch_size(self, model: str, timeouts: Timeouts) -> int:
        return await self._transport.max_batch_size(model, timeouts)

    async def aclose(self) -> None:
        """The other one's owner closes it."""

    def _marked(self, request: Request) -> Request:
        return replace(request, metadata={**request.metadata, **self._metadata})
