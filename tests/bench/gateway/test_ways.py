"""Asking over HTTP: answers that come in pieces, several on one connection, and none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from trimodal.bench.gateway.ways import over_grpc, over_http
from trimodal.client import Client
from trimodal.client.transports.fake import FakeTransport, scripted
from trimodal.errors import ServerError

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(text: str) -> bytes:
    body = f'data: {{"choices":[{{"delta":{{"content":"{text}"}}}}]}}\n\n'.encode()
    return b"%x\r\n%s\r\n" % (len(body), body)


@asynccontextmanager
async def serving(pieces: list[bytes]) -> AsyncIterator[tuple[str, list[int]]]:
    """A server that answers every request with these pieces; the numbers of requests of its connections."""
    counts: list[int] = []
    handlers: list[asyncio.Task[None] | None] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.append(asyncio.current_task())
        mine = len(counts)
        counts.append(0)
        while await reader.read(65_536):
            counts[mine] += 1
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.02)
            if not b"".join(pieces).endswith(b"0\r\n\r\n"):
                break
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", counts
        await asyncio.gather(*filter(None, handlers))


async def test_texts_are_counted_and_the_connection_is_kept() -> None:
    pieces = [HEAD + chunk(""), chunk("a") + chunk("b"), chunk("c"), b"0\r\n", b"\r\n"]
    async with serving(pieces) as (url, counts), over_http(url)() as ask:
        for _ in range(2):
            run = await ask(3)
            assert [count for _, count in run.texts] == [2, 1]
            assert 0.01 < run.ttft < 5
            assert run.texts[1][0] > run.texts[0][0]
    assert counts == [2]


@pytest.mark.parametrize(
    ("pieces", "problem"),
    [
        ([b"HTTP/1.1 500 Internal Server Error\r\n\r\n"], "no stream of text: .*500"),
        ([HEAD, chunk("cut")], "closed in an answer"),
    ],
)
async def test_what_is_no_answer(pieces: list[bytes], problem: str) -> None:
    async with serving(pieces) as (url, _), over_http(url)() as ask:
        with pytest.raises(ServerError, match=problem):
            await ask(1)


async def test_an_answer_without_text() -> None:
    async with serving([HEAD + chunk(""), b"0\r\n\r\n"]) as (url, _), over_http(url)() as ask:
        run = await ask(1)
    with pytest.raises(ServerError, match="no text"):
        _ = run.ttft


async def test_nobody_there() -> None:
    with pytest.raises(ServerError, match="nobody listens at http://127.0.0.1:1"):
        async with over_http("http://127.0.0.1:1")():
            pass


async def test_over_the_client() -> None:
    client = Client(transport=FakeTransport(llm=scripted("a few words")))
    async with over_grpc(client)() as ask:
        run = await ask(8)
    assert len(run.texts) == 3
