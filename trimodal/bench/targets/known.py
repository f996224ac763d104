"""Serves answers of known delays over HTTP, as Triton's generate_stream does: what a bench measures is known.

Every piece is due at a moment that is counted from the request's arrival, so delays never add up.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

from aiohttp import web

PATH = "/v2/models/llm/generate_stream"
START_S = 30.0


@dataclass(frozen=True)
class Delays:
    """Seconds until the first piece and between two; `pieces` of a token each."""

    ttft: float
    gap: float
    pieces: int

    @property
    def latency(self) -> float:
        return self.ttft + self.gap * (self.pieces - 1)


def make_app(delays: Delays) -> web.Application:
    """The server's application."""

    async def answer(request: web.Request) -> web.StreamResponse:
        clock = asyncio.get_running_loop().time
        arrived = clock()
        await request.read()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(delays.pieces):
            await asyncio.sleep(max(0.0, arrived + delays.ttft + number * delays.gap - clock()))
            event = {"text_output": "a", "prompt_tokens": 8, "completion_tokens": number + 1}
            await response.write(f"data: {json.dumps(event)}\n\n".encode())
        return response

    app = web.Application()
    app.router.add_post(PATH, answer)
    return app


@contextmanager
def known_server(delays: Delays) -> Iterator[str]:
    """The server in a process of its own; gives its address, host:port."""
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    process = context.Process(target=_serve, args=(other, delays), daemon=True)
    process.start()
    other.close()
    try:
        if not pipe.poll(START_S):
            raise RuntimeError(f"the server of known delays did not start within {START_S:g} s")
        yield f"127.0.0.1:{pipe.recv()}"
    finally:
        process.terminate()
        process.join(5.0)
        pipe.close()


def _serve(pipe: Connection, delays: Delays) -> None:
    async def main() -> None:
        runner = web.AppRunner(make_app(delays))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        pipe.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(main())
