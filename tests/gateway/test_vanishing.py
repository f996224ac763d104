"""A thousand clients that leave at random moments."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest

from tests.gateway.conftest import LIMIT_S, Serve, fake_triton
from tests.gateway.test_metrics import ENDPOINT, read
from trimodal.client.transports.fake import scripted
from trimodal.gateway.keys import Key, add_key

AT_ONCE = 50


@pytest.mark.slow
async def test_they_leave_nothing_behind(serve: Serve, file: Path) -> None:
    key = add_key(file, Key(name="app", max_streams=AT_ONCE))
    operator = add_key(file, Key(name="prometheus", operator=True))
    triton = fake_triton(llm=scripted("word " * 10, step=0.01))
    served = serve(triton, keys=file)
    port = int(served.url.rsplit(":", 1)[1])
    generator = random.Random(7)
    room = asyncio.Semaphore(AT_ONCE)

    def request(stream: bool) -> bytes:
        body = json.dumps({"model": "llm", "messages": [{"role": "user", "content": "hi"}], "stream": stream})
        head = f"POST {ENDPOINT} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n"
        return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()

    async def ask(stream: bool, size: float, patience_s: float) -> bytes:
        """Sends this share of the request, and reads for so long."""
        async with room:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            whole = request(stream)
            writer.write(whole[: round(len(whole) * size)])
            try:
                return await asyncio.wait_for(reader.read(-1), patience_s)
            except asyncio.TimeoutError:
                return b""
            finally:
                writer.transport.abort() if generator.random() < 0.5 else writer.close()

    await asyncio.gather(
        *(ask(bool(n % 2), generator.choice((0.5, 1, 1, 1)), generator.random() * 0.15) for n in range(1000))
    )
    loop = asyncio.get_running_loop()
    until = loop.time() + LIMIT_S
    while (found := await asyncio.to_thread(read, served.url, operator))["in_flight",] != 1:
        assert loop.time() < until, found["in_flight",]
    assert found["upstream_in_flight", "127.0.0.1:8001"] == 0
    assert found["requests_total", ENDPOINT, "llm", "499", "app"] > 100
    # A single place of the key that was not given back would refuse one of these.
    answers = await asyncio.gather(*(ask(True, 1, LIMIT_S) for _ in range(AT_ONCE)))
    assert all(answer.count(b"[DONE]") == 1 for answer in answers)
