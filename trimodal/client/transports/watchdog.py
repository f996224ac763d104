"""Ends calls that would never end: the server is silent, or the process that had the request is gone."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any

from trimodal.client.transports.probes import NEEDS
from trimodal.errors import Unavailable

LOOK_S = 0.3  # a call that waits has the health page asked this often
_RETRY_S = 2.0  # a model is mostly loaded again by then
_ANSWER_S = 1.0  # the health page answers at once, or not at all
_MOST_BYTES = 1 << 20
_ASKS_AGAIN = ("speech",)  # what a process had that died while it worked for this one


class HealthPage:
    """The page of one server, for one event loop: one question at a time serves all requests that wait."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._asking: asyncio.Task[dict[str, float]] | None = None

    async def lost(self, models: Sequence[str], waited: float) -> str:
        """The first of `models` that lost its process within the last `waited` seconds; empty: none did.

        Also empty without an answer.
        """
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask())
        ago = await asyncio.shield(self._asking)
        return next((model for model in models if ago.get(model, waited) < waited), "")

    async def _ask(self) -> dict[str, float]:
        """Model → seconds since it lost its process; those that never did are missing."""
        try:
            page = json.loads(await asyncio.wait_for(self._get(), _ANSWER_S))
            return {str(name): float(ago) for name, ago in page.items()}
        except (OSError, asyncio.TimeoutError, ValueError, TypeError, AttributeError):
            return {}
        except (ArithmeticError, RecursionError):  # a number or JSON that no page of ours has
            return {}

    async def _get(self) -> bytes:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(f"GET /lost HTTP/1.0\r\nHost: {self._host}\r\n\r\n".encode())
            answer = b""
            while len(answer) < _MOST_BYTES and (more := await reader.read(1 << 16)):
                answer += more
            return answer.partition(b"\r\n\r\n")[2]
        finally:
            writer.close()


class Watchdog:
    """Cancels one call after a silence, or when its model lost the process that has it.

    Silence counts between `wait` and `came`. One timer serves all waits: cheaper than one each.

    Args:
        call: of gRPC; it is cancelled.
        silence: the longest, in seconds.
        page: the server's; None: only silence ends the call.
        stages: of `probes.stages`: the loss of their models counts until they have passed.

    Attributes:
        silent: it was cancelled for silence.
        lost: the model for whose loss it was cancelled; empty: it was not.
    """

    def __init__(
        self,
        call: Any,
        model: str,
        silence: float,
        page: HealthPage | None,
        stages: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        self._call, self._silence, self._page = call, silence, page
        self._stages = dict(stages)
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

    def passed(self, told: Sequence[object]) -> None:
        """Stages have been told; what is none is ignored."""
        self._stages = {name: asks for name, asks in self._stages.items() if name.encode() not in told}

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
        asked = [*self._models, *chain.from_iterable(self._stages.values())]
        lost = await page.lost(asked, time.monotonic() - self._sent)
        if lost and self._since is not None:  # else an answer came meanwhile
            self.lost = lost
            self._call.cancel()
        else:
            self._timer = self._next()
