"""Runs one request to a model, and keeps its texts until somebody reads them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass, replace
from typing import Any

from trimodal.gateway.openai.generation import charging
from trimodal.gateway.quota import KeyUsage
from trimodal.gateway.realtime.hearing.endpoint import spoken
from trimodal.gateway.realtime.openai.conversation import ConversationMessage
from trimodal.gateway.realtime.openai.request import PreparedRequest


@dataclass(frozen=True)
class Question:
    """What an answer depends on."""

    model: str
    instructions: str
    options: Mapping[str, Any]
    talk: tuple[ConversationMessage, ...]

    def sounds_like(self, other: Question) -> bool:
        """Whether the other differs at most in case and punctuation of the last words."""
        same = replace(self, talk=()) == replace(other, talk=())
        (*before, last), (*others, latest) = self.talk, other.talk
        alike = (last.role, last.picture) == (latest.role, latest.picture)
        return same and before == others and alike and spoken(last.text) == spoken(latest.text)


class Generation:
    """One answer under way.

    Args:
        prepare: makes the request. use: counts it against its key while it runs; what was never `shown` is
            not charged.
    """

    def __init__(
        self,
        prepare: Callable[[], Awaitable[PreparedRequest]],
        use: Callable[[], AbstractContextManager[KeyUsage]],
        *,
        shown: bool = True,
    ) -> None:
        self.prepared: PreparedRequest | None = None
        self.shown = shown
        self._prepare, self._use = prepare, use
        self._texts: list[str] = []
        self._news = asyncio.Event()
        self.task = asyncio.ensure_future(self._run())

    @property
    def failed(self) -> bool:
        return self.task.done() and not self.task.cancelled() and self.task.exception() is not None

    @property
    def tokens(self) -> int:
        """That were computed for it: those of its prompt that were not in the cache, and the answer's."""
        used = self.prepared.stream.usage if self.prepared else None
        return used.prompt - used.cached + used.completion if used else 0

    @property
    def refused(self) -> bool:
        """Whether it failed before its first text."""
        return self.failed and not self._texts

    async def begins(self) -> None:
        """Waits for its first text, or its end."""
        while not self._texts and not self.task.done():
            self._news.clear()
            await self._news.wait()

    def show(self, usage: KeyUsage) -> None:
        """From now on it is charged at its end; to `usage` where it has ended."""
        self.shown = True
        if self.task.done() and self.prepared is not None:
            used = self.prepared.stream.usage
            usage.tokens = used.prompt + used.completion

    async def texts(self) -> AsyncGenerator[str, None]:
        """Yields its text from the beginning. Raises what the request did."""
        at = 0
        while True:
            self._news.clear()
            while at < len(self._texts):
                at += 1
                yield self._texts[at - 1]
            if self.task.done():
                await self.task
                return
            await self._news.wait()

    async def aclose(self) -> None:
        """Ends it on the server, too."""
        self.task.cancel()
        await asyncio.wait((self.task,))

    async def _run(self) -> None:
        try:
            with self._use() as usage:
                try:
                    self.prepared = await self._prepare()
                    async with (
                        charging([self.prepared.stream], usage),
                        aclosing(self.prepared.texts()) as texts,
                    ):
                        async for text in texts:
                            self._texts.append(text)
                            self._news.set()
                finally:
                    if not self.shown:
                        usage.tokens = 0
        finally:
            self._news.set()
