"""Keeps what is known of one Triton: which models answer, and how many requests it has."""

from __future__ import annotations

import asyncio
import logging

from trimodal.client.errors import TransportError
from trimodal.client.transports.base import Timeouts, Transport
from trimodal.client.transports.probes import NEEDS
from trimodal.errors import TrimodalError

logger = logging.getLogger(__name__)


class Upstream:
    """One Triton.

    Attributes:
        models: whether each model answers, by name; empty before the first look.
        running: requests and streams of speech that it has from here.
        moved: requests that it failed or refused and that another server was asked.
    """

    def __init__(self, address: str, transport: Transport, *, draining: bool = False) -> None:
        self.address = address
        self.transport = transport
        self.draining = draining
        self.models: dict[str, bool] = {}
        self.running = 0
        self.moved = 0
        # Of each model at the last look, with the question that this look asked.
        self._inferences: dict[str, int] = {}

    async def look(self, timeouts: Timeouts) -> None:
        """Finds out which models answer; one look at a time."""
        before = self.models
        try:
            found = {one.name: one.inferences for one in await self.transport.models(timeouts)}
        except TrimodalError:
            self.models = dict.fromkeys(self.models, False)
        else:
            answers = await asyncio.gather(*(self._answers(name, found[name], timeouts) for name in found))
            own = dict(zip(found, answers, strict=True))
            self._inferences = {name: self._inferences[name] for name in found}
            self.models = {
                name: answer and all(own.get(need, True) for need in NEEDS.get(name, ()))
                for name, answer in own.items()
            }
        for name, answer in self.models.items():
            if answer != before.get(name, True):
                logger.log(
                    logging.INFO if answer else logging.WARNING,
                    "%s at %s %s", name, self.address, "answers again" if answer else "does not answer",
                )  # fmt: skip

    def failed(self, model: str, error: TrimodalError) -> None:
        """Takes in that a request got no answer: until the next look this model, or all, count as dead."""
        gone = list(self.models) if isinstance(error, TransportError) else [model]
        self.models |= dict.fromkeys(gone, False)

    async def _answers(self, model: str, inferences: int, timeouts: Timeouts) -> bool:
        # What has answered since the last look is not asked. A busy model may take its time.
        if inferences > self._inferences.get(model, inferences):
            self._inferences[model] = inferences
            return True
        self._inferences[model] = inferences + 1
        try:
            return await self.transport.ready(model, timeouts)
        except TrimodalError:
            return False
