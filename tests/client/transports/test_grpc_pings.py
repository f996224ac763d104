"""Which connections are dead, slow or only silent."""

import asyncio
import contextlib
import math
import os
import socket
from pathlib import Path

import pytest

from tests.client.transports.grpc_server import serving
from trimodal.client import Client, ConnectionLost, Timeouts
from trimodal.client.transports import grpc as module


@pytest.mark.parametrize("silence", [1, 60, math.inf])
def test_pings_are_as_far_apart_as_any_server_wants_them(silence):
    """One that `trimodal serve` did not start ended the connection with "too_many_pings"."""
    assert dict(module._options(Timeouts(silence=silence)))["grpc.keepalive_time_ms"] > 300_000


async def test_what_is_sent_into_a_dead_network_ends_the_connection():
    """By TCP_USER_TIMEOUT: pings are too far apart."""
    async with serving() as (_, client, _):
        await client.ready("embedding")
        timeouts = set()
        for entry in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(entry.name))) as one:
                timeouts.add(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
        assert module._PONG_MS in timeouts


async def test_a_network_that_is_dead_is_noticed_by_its_pings(monkeypatch):
    """gRPC 1.85 waited a minute for the answer to one, whatever its keepalive_timeout."""
    monkeypatch.setattr(module, "_PING_MS", 200)
    monkeypatch.setattr(module, "_PONG_MS", 200)
    answering = []

    async def answer(reader, writer):
        answering.append(asyncio.current_task())
        writer.write(b"\0\0\0\4\0\0\0\0\0\0\0\0\4\1\0\0\0\0")  # its settings, and that it has ours
        with contextlib.suppress(ConnectionError):
            await reader.read(-1)
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        async with Client(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
            with pytest.raises(ConnectionLost):
                await client.complete("hi", timeout=30)
    finally:
        server.close()
        await asyncio.gather(*answering)


async def test_a_slow_line_is_not_taken_for_a_dead_one(monkeypatch):
    """An answer had gRPC ping, and the ping waited behind an upload for longer than a dead line may."""
    monkeypatch.setattr(module, "_PONG_MS", 200)
    carrying = []

    async def carry(reader, writer):
        carrying.append(asyncio.current_task())
        there, back = await asyncio.open_connection(*servicer.url.split(":"))

        async def upload():
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(50_000):
                    back.write(data)
                    await asyncio.sleep(0.05)
            back.close()

        uploading = asyncio.create_task(upload())
        with contextlib.suppress(ConnectionError):
            while data := await there.read(50_000):
                writer.write(data)
        await uploading
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
            await back.wait_closed()

    async with serving() as (servicer, _, _):
        line = await asyncio.start_server(carry, "127.0.0.1", 0, limit=50_000)
        try:
            async with Client(f"127.0.0.1:{line.sockets[0].getsockname()[1]}", connections=1) as client:
                answers = [client.embed(["x" * size]) for size in (500_000, 1_000_000)]
                assert [one.tolist() for one in await asyncio.gather(*answers)] == [[[3, 4]]] * 2
        finally:
            line.close()
            await asyncio.gather(*carrying)
