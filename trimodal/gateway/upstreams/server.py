"""Keeps what is known of one Triton: which models answer, and how many requests it has."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from trimodal.client.errors import TransportError
from trimodal.client.transports.base import Timeouts, Transport, named
from trimodal.client.transports.probes import DECOUPLED, NEEDS
from trimodal.errors import TrimodalError

logger = logging.getLogger(__name__)


class Upstream:
    """One Triton.

    Attributes:
        versions: model → version, the highest last → whether it answers; empty before the first look.
        running: requests and streams of speech that it has from here.
        moved: requests that it failed or refused and that another server was asked.
    """

    def __init__(self, address: str, transport: Transport, *, draining: bool = False) -> None:
        self.address = address
        self.transport = transport
        self.draining = draining
        self.versions: dict[str, dict[str, bool]] = {}
        self.running = 0
        self.moved = 0
        # Of each model and version at the last look, with the question that this look asked.
        self._inferences: dict[tuple[str, str], int] = {}

    @property
    def models(self) -> dict[str, bool]:
        """Whether each model answers who names no version."""
        return {name: self.answers(name) for name in self.versions}

    def answers(self, model: str, version: str = "", has: Callable[[str], bool] | None = None) -> bool:
        """Whether a model answers, in this version or in its highest, and those that it needs.

        `has` says of one that is needed whether it answers; None: the highest version has to.
        """
        versions = self.versions.get(model, {})
        needs = (need for need in NEEDS.get(model, ()) if need in self.versions)
        return versions.get(version or _highest(versions), False) and all(map(has or self.answers, needs))

    async def look(self, timeouts: Timeouts) -> None:
        """Finds out which versions of which models answer; one look at a time."""
        before = self.versions
        try:
            found = {(one.name, one.version): one.inferences for one in await self.transport.models(timeouts)}
        except TrimodalError:
            self._all_silent()
        else:
            answers = await asyncio.gather(*(self._asked(*one, timeouts) for one in found.items()))
            self._inferences = {one: self._inferences[one] for one in found}
            self.versions = {name: {} for name, _ in found}
            for (name, version), answer in zip(found, answers, strict=True):
                self.versions[name][version] = answer
        for name, versions in self.versions.items():
            for version, answer in versions.items():
                if answer != before.get(name, {}).get(version, True):
                    logger.log(
                        logging.INFO if answer else logging.WARNING,
                        "%s@%s at %s %s",
                        name, version, self.address, "answers again" if answer else "does not answer",
                    )  # fmt: skip

    def failed(self, model: str, error: TrimodalError) -> None:
        """Takes in that a request got no answer: until the next look this model, or all, count as dead."""
        name, version = named(model)
        if isinstance(error, TransportError):
            self._all_silent()
        elif versions := self.versions.get(name):
            versions[version or _highest(versions)] = False

    def _all_silent(self) -> None:
        self.versions = {name: dict.fromkeys(versions, False) for name, versions in self.versions.items()}

    async def _asked(self, one: tuple[str, str], inferences: int, timeouts: Timeouts) -> bool:
        # What has answered since the last look is not asked: a busy model may take its time. Triton counts
        # what a decoupled one refuses, too: an llm without engine was ready while clients asked it again.
        if one[0] not in DECOUPLED and inferences > self._inferences.get(one, inferences):
            self._inferences[one] = inferences
            return True
        self._inferences[one] = inferences + 1
        try:
            return await self.transport.ready("@".join(one), timeouts)
        except TrimodalError:
            return False


def _highest(versions: dict[str, bool]) -> str:
    return next(reversed(versions), "")
