"""The gateway in front of the llm service on its fake engine, with a cache that takes all texts for one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.cache.doubles import Alike, Rig, ScriptedStore
from tests.gateway.conftest import fake_triton, start_gateway
from tests.llm.doubles.engine_thread import start_thread
from tests.llm.doubles.sinks import FakeServer
from trimodal.client.transports.base import Request, Tensors
from trimodal.client.transports.fake import FakeTransport, Streaming, labelled
from trimodal.errors import RequestError
from trimodal.gateway.keys import Key, add_key
from trimodal.llm.engine_core.client import EngineCoreClient
from trimodal.llm.engines.protocol import open_engine
from trimodal.llm.request.outputs import Delta, columns
from trimodal.llm.request.request import read_request
from trimodal.llm.settings import LlmSettings


@dataclass
class Stack:
    """`keys`: name → key. "anna" and "anna too" are one tenant, "bert" is another."""

    url: str
    triton: FakeTransport
    llm: FakeServer
    cache: Rig
    keys: dict[str, str]
    clients: dict[str, httpx.Client]

    def post(self, name: str, path: str, body: object, **headers: str) -> httpx.Response:
        return self.clients[name].post(path, json=body, headers=headers)


@contextmanager
def stack(
    folder: Path, engine: Mapping[str, object] | None = None, look_s: float = 0.0, **limits: Any
) -> Iterator[Stack]:
    """One on a free port while the block lasts.

    Args:
        engine: settings of the llm; an engine that is none of the fakes serves without an answer cache.
        look_s: what looking at a picture takes.
        limits: of bert's key.
    """
    file = folder / "keys.toml"
    made = {
        "anna": Key(name="anna"),
        "anna too": Key(name="anna too", tenant="anna"),
        "bert": Key(name="bert", **limits),
    }
    keys = {name: add_key(file, key) for name, key in made.items()}
    rig = Rig(store=ScriptedStore(), embedder=Alike())
    fake = "engine" not in (engine or {})
    values = {"fake_step_ms": 0.2, "fake_prefill_us": 1.0, "cache": "semantic"} if fake else {}
    values = {**values, **(engine or {})}
    with ExitStack() as running:
        llm = running.enter_context(FakeServer(rig.cache if fake else None, start=_start, **values))
        triton = fake_triton(llm=model_of(llm), vision=_slowly(look_s))
        url = start_gateway(running, triton, keys=file, log_requests=0)
        clients = {
            name: running.enter_context(
                httpx.Client(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=20)
            )
            for name, key in keys.items()
        }
        yield Stack(url, triton, llm, rig, keys, clients)


def _start(settings: LlmSettings) -> EngineCoreClient:
    return start_thread(open_engine(settings))


def _slowly(seconds: float) -> Callable[[Request], Awaitable[Tensors]]:
    looks = labelled(("seven", 0.9), ("one", 0.1))

    async def vision(request: Request) -> Tensors:
        await asyncio.sleep(seconds)
        return looks(request)

    return vision


def model_of(server: FakeServer) -> Streaming:
    """The service as a model of a FakeTransport, as its glue makes it one of Triton's."""

    async def llm(request: Request) -> AsyncIterator[Tensors]:
        sink = _Sink(asyncio.get_running_loop())
        wanted = read_request(request.inputs, request.parameters, server.settings)
        server.service.submit(wanted, sink, request.id)
        try:
            while True:
                given = await sink.given.get()
                if isinstance(given, RequestError):
                    raise given
                yield columns(given)
                if given.finish_reason:
                    return
        finally:
            sink.left = True

    return llm


class _Sink:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.given: asyncio.Queue[Delta | RequestError] = asyncio.Queue()
        self.left = False

    def send(self, delta: Delta) -> None:
        self._put(delta)

    def fail(self, error: RequestError) -> None:
        self._put(error)

    def is_cancelled(self) -> bool:
        return self.left

    def _put(self, what: Delta | RequestError) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.given.put_nowait, what)
