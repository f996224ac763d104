"""Keeps what is known of one Triton: which models answer, and how many requests it has."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from trimodal.client.errors import Timeout, TransportError
from trimodal.client.transports.base import Timeouts, Transport, named
from trimodal.client.transports.probes import DECOUPLED, NEEDS
from trimodal.errors import TrimodalError

logger = logging.getLogger(__name__)


class Call(Protocol):
    """What waits for an answer: a task, or an open stream of responses."""

    def cancel(self) -> object: ...


class Upstream:
    """One Triton.

    Attributes:
        versions: model → version, the highest last → whether it answers; empty before the first look. One
            that is loaded later comes in with its first answer: the highest until then goes on.
        running: requests and streams of speech that it has from here.
        closed: it has left, and takes no request any more.
        moved: requests that it failed or refused and that another server was asked.
        is_reached: by the last look; None: before the first.
        hangs: whether the last look had no answer in time. One that is refused or fails at once says nothing
            of calls that run: theirs fail by themselves.
        movable: calls without an answer so far that another server could have.
    """

    def __init__(self, address: str, transport: Transport) -> None:
        self.address = address
        self.transport = transport
        self.draining = False
        self.is_reached: bool | None = None
        self.hangs = False
        self.versions: dict[str, dict[str, bool]] = {}
        self.running = 0
        self.closed = False
        self.moved = 0
        self.movable: set[Call] = set()
        # Of each model and version at the last look, with the question that this look asked.
        self._inferences: dict[tuple[str, str], int] = {}
        self._asking: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._late: set[tuple[str, str]] = set()  # whose question waits for longer than a quick answer takes

    @property
    def models(self) -> dict[str, bool]:
        """Whether each model answers who names no version."""
        return {name: self.answers(name) for name in self.versions}

    def has(self, models: Mapping[str, str]) -> bool:
        """Whether it is known to have these models, in these versions; "": in any."""
        return all(
            name in self.versions and (not version or version in self.versions[name])
            for name, version in models.items()
        )

    def answers(self, model: str, version: str = "", has: Callable[[str], bool] | None = None) -> bool:
        """Whether a model answers, in this version or in its highest, and those that it needs.

        `has` says of one that is needed whether it answers; None: the highest version has to.
        """
        versions = self.versions.get(model, {})
        needs = (need for need in NEEDS.get(model, ()) if need in self.versions)
        return versions.get(version or _highest(versions), False) and all(map(has or self.answers, needs))

    def is_late(self, model: str, version: str = "") -> bool:
        """Whether a model, or one that it needs, keeps a question waiting: it is busy, or it hangs."""
        ones = {model: version, **dict.fromkeys(NEEDS.get(model, ()), "")}
        return any(
            (name, one or _highest(self.versions.get(name, {}))) in self._late for name, one in ones.items()
        )

    async def look(self, timeouts: Timeouts) -> None:
        """Finds out which models there are, and begins to ask each version; one look at a time.

        A version that has not answered the last question yet gets no other, and is what it was, unless it
        has answered something else: one that hangs delays nothing that is told of the others. What comes
        after a failure is no answer to it.
        """
        try:
            found = {(one.name, one.version): one.inferences for one in await self.transport.models(timeouts)}
        except TrimodalError as error:
            if self.is_reached is not False:
                logger.warning("%s is not reached: %s", self.address, error)
            self.is_reached, self.hangs = False, isinstance(error, Timeout)
            self._forget(list(self._asking))
            for name, versions in self.versions.items():
                for version in versions:
                    self._note(name, version, False)
            return
        if self.is_reached is False:
            logger.info("%s is reached", self.address)
        self.is_reached, self.hangs = True, False
        before = self.versions
        self.versions = {name: {} for name, _ in found if name in before or not before}
        for name, version in found:
            if not before or version in before.get(name, ()):
                self.versions[name][version] = before.get(name, {}).get(version, False)
        self._forget([one for one in self._asking if one not in found])
        self._inferences = {one: count for one, count in self._inferences.items() if one in found}
        for one, inferences in found.items():
            known = one[1] in before.get(one[0], {})
            if self._has_answered(one, inferences):
                self._forget([one])
                self._note(*one, True)
            elif one not in self._asking:
                self._inferences[one] = inferences + 1
                self._asking[one] = asyncio.ensure_future(self._ask(one, timeouts, known=known))

    async def answered(self, limit: float) -> None:
        """Waits until every version has answered, or for `limit` seconds."""
        if self._asking:
            await asyncio.wait(self._asking.values(), timeout=limit)

    async def aclose(self) -> None:
        """Asks nothing more, and closes the connections."""
        self.closed = True
        await asyncio.gather(*self._forget(list(self._asking)), return_exceptions=True)
        await self.transport.aclose()

    def failed(self, model: str, error: TrimodalError) -> None:
        """Takes in that a request got no answer: until the next look this model, or all, count as dead."""
        name, version = named(model)
        versions = self.versions.get(name, {})
        if isinstance(error, TransportError):
            self.versions = {model: dict.fromkeys(known, False) for model, known in self.versions.items()}
            self._forget(list(self._asking))
            self._inferences.clear()
        elif (version := version or _highest(versions)) in versions:
            versions[version] = False
            self._forget([(name, version)])
            self._inferences.pop((name, version), None)

    def give_up(self) -> None:
        """Ends the calls that another server could have."""
        calls, self.movable = self.movable, set()
        for call in calls:
            call.cancel()

    def _forget(self, ones: Iterable[tuple[str, str]]) -> list[asyncio.Task[None]]:
        """Takes these questions back: an answer that is late says nothing of what failed meanwhile."""
        asking = [self._asking.pop(one) for one in ones if one in self._asking]
        for task in asking:
            task.cancel()
        return asking

    def _has_answered(self, one: tuple[str, str], inferences: int) -> bool:
        # What has answered since the last look is not asked: a busy model may take its time. Triton counts
        # what a decoupled one refuses, too: an llm without engine was ready while clients asked it again.
        if one[0] not in DECOUPLED and inferences > self._inferences.get(one, inferences):
            self._inferences[one] = inferences
            return True
        return False

    async def _ask(self, one: tuple[str, str], timeouts: Timeouts, *, known: bool) -> None:
        # A decoupled model answers beside its work; with another the question waits behind a run, which
        # may take long. Down is what a request would be given up for, too.
        limit = timeouts.connect if one[0] in DECOUPLED else max(timeouts.connect, timeouts.silence)
        late = asyncio.get_running_loop().call_later(timeouts.connect, self._late.add, one)
        answer = False
        try:
            question = self.transport.ready("@".join(one), replace(timeouts, connect=limit, total=limit))
            with suppress(TrimodalError, asyncio.TimeoutError):
                answer = await asyncio.wait_for(question, limit)
        finally:
            late.cancel()
            self._late.discard(one)
            if self._asking.get(one) is asyncio.current_task():
                del self._asking[one]
                self._note(*one, answer, known=known)

    def _note(self, name: str, version: str, answer: bool, *, known: bool = True) -> None:
        """Takes in whether a version answers. Not `known`: this is the first that is told of it."""
        versions = self.versions.get(name, {})
        before = versions.get(version)
        told = {**versions, version: answer}
        self.versions[name] = {one: told[one] for one in sorted(told, key=lambda one: (len(one), one))}
        if answer != (before if known else True):
            logger.log(
                logging.INFO if answer else logging.WARNING,
                "%s@%s at %s %s",
                name, version, self.address, "answers again" if answer else "does not answer",
            )  # fmt: skip


def _highest(versions: dict[str, bool]) -> str:
    return next(reversed(versions), "")
