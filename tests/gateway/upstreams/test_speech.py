"""Streams of speech stay on the server where they began."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from tests.gateway.conftest import fake_triton
from tests.gateway.upstreams.servers import BOUND, Servers
from trimodal.client.errors import ProtocolError, Timeout, TransportError
from trimodal.client.transports.base import Request, Tensors
from trimodal.errors import InvalidArgument, ModelNotFound


async def test_speech_stays_where_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    chunk = np.zeros(1600, np.float32)
    async with Servers(monkeypatch, fake_triton(), fake_triton()) as servers:
        streams = [servers.client.listen() for _ in range(6)]
        for _ in range(5):
            for stream in streams:
                await stream.send(chunk)
        assert [server.running for server in servers.pool.servers] == [3, 3]
        assert [len(fake.functions["speech"].streams) for fake in servers.fakes.values()] == [3, 3]
        for stream in streams[:4]:
            await stream.end()
        for stream in streams[4:]:
            await stream.aclose()  # left without its last words
        assert not any(fake.functions["speech"].streams for fake in servers.fakes.values())


@pytest.mark.parametrize(
    "error", [Timeout("no answer in time"), ProtocolError("an answer without a text"), None]
)
async def test_speech_whose_beginning_failed_or_was_left_ends_where_it_may_have_begun(
    monkeypatch: pytest.MonkeyPatch, error: TransportError | None
) -> None:
    """Its END went to any server: another one kept the stream until it had been idle for long."""
    starting = asyncio.Event()

    async def begins(request: Request) -> Tensors:
        if request.parameters["sequence_start"]:
            starting.set()
            if error:
                raise error
            await asyncio.sleep(BOUND)
        return {}

    async with Servers(monkeypatch, fake_triton(speech=begins), fake_triton(speech=begins)) as servers:
        for _ in range(4):
            starting.clear()
            async with servers.client.listen() as stream:
                sending = asyncio.ensure_future(stream.send(np.zeros(1600, np.float32)))
                await starting.wait()
                if not error:
                    sending.cancel()
                with pytest.raises(type(error) if error else asyncio.CancelledError):
                    await sending
        for fake in servers.fakes.values():
            ids = [one.parameters["sequence_id"] for one in fake.requests]
            assert ids
            assert ids[::2] == ids[1::2]


async def test_speech_ends_with_its_server_and_a_new_stream_begins_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chunk = np.zeros(1600, np.float32)
    async with Servers(monkeypatch, fake_triton(), fake_triton()) as servers:
        stream = servers.client.listen()
        await stream.send(chunk)
        (one,) = [fake for fake in servers.fakes.values() if fake.requests]
        one.reachable = False
        with pytest.raises(TransportError):
            await stream.send(chunk)
        for _ in range(3):
            async with servers.client.listen() as other:
                await other.send(chunk)
                await other.end()


async def test_speech_whose_version_was_retired_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    chunk, missing = np.zeros(1600, np.float32), ModelNotFound("the server has no model 'speech' version 1")
    fake = fake_triton()
    speech = fake.functions["speech"]

    def retired(request: Request) -> Tensors:
        raise missing

    async with Servers(monkeypatch, fake) as servers:
        stream = servers.client.listen()
        await stream.send(chunk)
        fake.functions["speech"] = retired
        with pytest.raises(ModelNotFound, match="version 1"):
            await stream.send(chunk)
        assert (servers.pool._speech, servers.pool.servers[0].running) == ({}, 0)
        fake.functions["speech"] = speech
        with pytest.raises(InvalidArgument, match="the stream has failed: open another one"):
            await stream.send(chunk)
