"""Ends calls that would never end: the server is silent, or the process that had the request is gone."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from trimodal.client.transports.health import HealthPage
from trimodal.client.transports.probes import NEEDS
from trimodal.errors import Unavailable

LOOK_S = 0.3  # a call that waits has the health page asked this often
_RETRY_S = 2.0  # a model is mostly loaded again by then
_ASKS_AGAIN = ("speech",)  # what a process had that died while it worked for this one


class Watchdog:
    """Cancels one call after a silence, or when its model lost the process that has it.

    Silence counts between `wait` and `came`. One timer serves all waits: cheaper than one each.

    Args:
        call: of gRPC; it is cancelled.
        silence: the longest, in seconds.
        page: the server's; None: only silence ends the call.

    Attributes:
        silent: it was cancelled for silence.
        lost: the model for whose loss it was cancelled; empty: it was not.
    """

    def __init__(self, call: Any, model: str, silence: float, page: HealthPage | None) -> None:
        self._call, self._silence, self._page = call, silence, page
        self._models = [model, *(() if model in _ASKS_AGAIN else NEEDS.get(model, ()))]
        self._sent = time.monotonic()
        self._since: float | None = None  # when the present wait began
        self.silent, self.lost = False, ""
        self._loop = asyncio.get_running_loop()
        self._question: asyncio.Task[None] | None = None
        self._timer = self._next()

    def wait(self) -> None:
        """From now on the next answer is waited for."""
        self._since = time.monotonic()

    def came(self) -> None:
        """It came, or nobody waits any more."""
        self._since = None

    def end(self) -> None:
        """The call has ended."""
        self._timer.cancel()
        if self._question:
            self._question.cancel()

    def loss(self) -> Unavailable:
        """The error of a request whose process is gone."""
        return Unavailable(f"{self.lost}: the process that had this request died", _RETRY_S)

    @property
    def _waited(self) -> float:
        return 0.0 if self._since is None else time.monotonic() - self._since

    def _next(self) -> asyncio.TimerHandle:
        left = max(0.0, self._silence - self._waited)
        return self._loop.call_later(min(left, LOOK_S) if self._page else left, self._look)

    def _look(self) -> None:
        if self._waited >= self._silence:
            self.silent = True
            self._call.cancel()
        elif self._page and self._waited >= LOOK_S:
            self._question = self._loop.create_task(self._ask(self._page))
        else:
            self._timer = self._next()

    async def _ask(self, page: HealthPage) -> None:
        lost = await page.lost(self._models, time.monotonic() - self._sent)
        if lost and self._since is not None:  # else an answer came meanwhile
            self.lost = lost
            self._call.cancel()
        else:
            self._timer = self._next()
