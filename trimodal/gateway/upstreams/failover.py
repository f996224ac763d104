"""Sends one request to servers, one after the other, until one answers.

A request that failed before any of its answer was passed on is sent elsewhere, once to each server and within
its deadlines, unless it is the request's own fault. So is one that waits where nothing answers any more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from trimodal import logs
from trimodal.client.errors import ConnectError, ConnectionLost, is_dead
from trimodal.client.transports.base import Request, Responses, Tensors, Timeouts, Transport
from trimodal.errors import ModelNotFound, TrimodalError, Unavailable
from trimodal.gateway.upstreams.server import Call, Upstream

Answer = TypeVar("Answer")
_DEADLINES = ("ttft_deadline_ms", "deadline_ms")
_TELLING = ("text_output", "reasoning", "finish_reason")


class Failover:
    """One request and the servers that it may go to, each once; `asked`: the last that it went to."""

    def __init__(self, order: Sequence[Upstream], request: Request, timeouts: Timeouts) -> None:
        self.request = request
        self.timeouts = timeouts
        self._left = [*order]
        self._began = time.monotonic()
        self._refusal: TrimodalError | None = None
        self._unseen = False  # whether one was not reached whose models are not known yet
        self.asked: Upstream | None = None

    def next(self) -> Upstream:
        """The next server. Raises: why it was refused so far, or Unavailable where none could be reached."""
        self._left = [server for server in self._left if not server.closed]
        if not self._left:
            if self._unseen and isinstance(self._refusal, ModelNotFound):
                reached = f"no server that is reached has the model '{self.request.name}'"
                raise Unavailable(f"{reached}; which models others have is not known yet", 1.0)
            raise self._refusal or no_server()
        server = self._left.pop(0)
        if self.asked is not None:
            self._shorten()
            self.asked.moved += 1
        self.asked = server
        logs.note(upstream=server.address)
        return server

    def failed(self, server: Upstream, error: TrimodalError) -> None:
        """Takes in how a server failed. Raises: the error, where no other one may be asked."""
        lacks = _lacks(error, server, self.request)
        self._unseen |= isinstance(error, ConnectError) and not server.versions
        if isinstance(error, ConnectError | ConnectionLost) or (
            not lacks and _is_gone(error, server, self.request.model)
        ):
            server.failed(self.request.model, error)
        elif not isinstance(error, Unavailable) and not lacks:
            raise error
        # A refusal says more than an address where nobody listens, or a server that has not the model.
        if not isinstance(error, ConnectError) and not (lacks and self._refusal):
            self._refusal = error

    async def ask(self, question: Callable[[Transport], Awaitable[Answer]]) -> tuple[Answer, Upstream]:
        """The first answer that a server gives, and which one it is. Raises: as `next` and `failed`."""
        while True:
            server = self.next()
            server.running += 1
            try:
                return await self._answer(server, question), server
            except TrimodalError as error:
                self.failed(server, error)
            finally:
                server.running -= 1

    async def _answer(self, server: Upstream, question: Callable[[Transport], Awaitable[Answer]]) -> Answer:
        """One server's answer. Raises: ConnectionLost: it is not reached any more, and another one is."""
        call = asyncio.ensure_future(question(server.transport))
        self.offer(server, call)
        try:
            (outcome,) = await asyncio.gather(call, return_exceptions=True)
        finally:
            server.movable.discard(call)
        if isinstance(outcome, asyncio.CancelledError):  # the call, and not this task
            raise hangs()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def offer(self, server: Upstream, call: Call) -> None:
        """Lets a server that is not reached any more end a call, where another server could have it."""
        if self._left:
            server.movable.add(call)

    def _shorten(self) -> None:
        """Takes the time that is gone off the deadlines. Raises: the last problem, where none is left."""
        now = time.monotonic()
        gone, self._began = now - self._began, now
        inputs = dict(self.request.inputs)
        for name in _DEADLINES:
            if name in inputs:
                left = int(inputs[name][0]) - int(gone * 1000)
                if left < 1:
                    raise self._refusal or no_server()
                inputs[name] = np.array([left], inputs[name].dtype)
        self.request = replace(self.request, inputs=inputs)
        if self.timeouts.total is not None:
            if self.timeouts.total <= gone:
                raise self._refusal or no_server()
            self.timeouts = replace(self.timeouts, total=self.timeouts.total - gone)


class FailoverResponses:
    """The responses to one request, from whichever server gives them."""

    def __init__(self, failover: Failover) -> None:
        self._failover = failover
        self._server: Upstream | None = None
        self._responses: Responses | None = None
        self._told = self._cancelled = self._is_movable = False

    async def open(self) -> None:
        """Sends the request to the first server that takes it. Raises: as `Failover`."""
        while True:
            server = self._failover.next()
            self._hold(server)
            try:
                self._responses = await server.transport.stream(
                    self._failover.request, self._failover.timeouts
                )
                self._failover.offer(server, self._responses)
                self._is_movable = self._responses in server.movable
                return
            except TrimodalError as error:
                self._hold(None)
                self._failover.failed(server, error)
            except BaseException:
                self._hold(None)
                raise

    async def read(self) -> Tensors | None:
        while self._responses is not None:
            try:
                outputs = await self._responses.read()
                if self._is_given_up:  # also where a first text came before: nothing would follow it
                    raise hangs()
            except TrimodalError as error:
                server = self._server
                self._hold(None)
                if self._told or self._cancelled or server is None:
                    raise
                self._failover.failed(server, error)
                await self.open()
                if self._cancelled:  # meanwhile
                    self.cancel()
                continue
            except BaseException:
                self._hold(None)
                raise
            if outputs is None:
                self._hold(None)
            elif not self._told:
                self._told = _tells(outputs)
                if self._told:
                    self._settle()
            return outputs
        return None

    def cancel(self) -> None:
        self._cancelled = True
        self._hold(None)
        if self._responses is not None:
            self._responses.cancel()

    def finish(self) -> None:
        self._hold(None)
        if self._responses is not None:
            self._responses.finish()

    @property
    def _is_given_up(self) -> bool:
        """Whether the server ended this call because it hangs; not once a client may have been told of it."""
        return self._is_movable and self._server is not None and self._responses not in self._server.movable

    def _settle(self) -> None:
        """The request stays where it is."""
        self._is_movable = False
        if self._server is not None and self._responses is not None:
            self._server.movable.discard(self._responses)

    def _hold(self, server: Upstream | None) -> None:
        """Counts this request where it is."""
        self._settle()
        if self._server is not None:
            self._server.running -= 1
        if server is not None:
            server.running += 1
        self._server = server


def _is_gone(error: TrimodalError, server: Upstream, model: str) -> bool:
    """Whether a model that was there is not any more: its process was killed, or it is being unloaded."""
    if isinstance(error, ModelNotFound):
        return model in server.models
    return is_dead(error)


def _lacks(error: TrimodalError, server: Upstream, request: Request) -> bool:
    """Whether a server has not the model, or not in the version asked for; another may have it by now."""
    asks_version = request.name != request.model or "versions" in request.parameters
    return isinstance(error, ModelNotFound) and (asks_version or request.name not in server.models)


def _tells(outputs: Tensors) -> bool:
    """Whether a client may have been told of this; the final response, for one, is empty."""
    if "stage" in outputs:  # of the assistant: what was heard and seen is told at once
        return True
    return any(name in outputs and bool(outputs[name][0]) for name in _TELLING)


def hangs() -> ConnectionLost:
    return ConnectionLost("the server does not answer")


def no_server() -> Unavailable:
    return Unavailable("no model server takes requests now", 1.0)
