"""Measures what the gateway adds to a stream of text, beside the same requests over gRPC.

    python -m trimodal.bench.gateway

The engine is a fake one with steps of fixed length: only the way to and from it counts. Both ways take turns,
so that both see the same machine. The load comes from this process, through plain sockets.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated

import typer
from rich.console import Console

from trimodal.bench.common.closed_loop import milliseconds
from trimodal.bench.common.serving import serving
from trimodal.bench.common.tables import make_table
from trimodal.client import Client, Message
from trimodal.errors import ServerError
from trimodal.server.options import ServerOptions

ENGINE = {"engine": "fake", "fake_step_ms": "20", "max_num_seqs": "64", "fake_answer": "word " * 200}
TOKENS = 48
TURNS = 6
STREAMS = (1, 16, 64)
CHAT: list[Message] = [{"role": "user", "content": "what is a lambda?"}]
_LIMIT_S = 30.0
_TICKS = os.sysconf("SC_CLK_TCK")
# A delta with text, in the bytes of the stream; the first chunk, with the role, has an empty one.
_TEXT = b'"delta":{"content":"'


@dataclass
class Side:
    """One way: seconds to first text of each request, and how many deltas came."""

    ttft: list[float] = field(default_factory=list)
    deltas: int = 0


@dataclass
class Level:
    """Both ways at one number of streams; `cpu_s`: processor time of the gateway meanwhile."""

    streams: int
    direct: Side = field(default_factory=Side)
    gateway: Side = field(default_factory=Side)
    cpu_s: float = 0.0

    def added_ms(self, percent: float) -> float:
        return milliseconds(self.gateway.ttft, percent) - milliseconds(self.direct.ttft, percent)

    @property
    def deltas_per_core_s(self) -> float:
        """Deltas that one core could forward in a second."""
        return self.gateway.deltas / self.cpu_s if self.cpu_s else 0.0


async def measure(streams: tuple[int, ...], turns: int, tokens: int) -> list[Level]:
    """Runs all levels, one after the other. Raises: OperatorError when a server cannot start."""
    levels = [Level(count) for count in streams]
    options = ServerOptions.on_free_ports("llm", changes={"llm": ENGINE})
    async with (
        serving(options, connections=4) as (server, client),
        running_gateway(server.grpc_url) as (port, pid),
    ):
        for level in levels:
            for turn in range(turns + 1):
                counted = level if turn else Level(level.streams)  # the first warms up
                await _at_once(level.streams, lambda: _direct(client, counted.direct, tokens))  # noqa: B023
                before = _cpu_s(pid)
                await _at_once(level.streams, lambda: _through(port, counted.gateway, tokens))  # noqa: B023
                counted.cpu_s += _cpu_s(pid) - before
    return levels


async def _at_once(count: int, ask: Callable[[], Awaitable[None]]) -> None:
    await asyncio.wait_for(asyncio.gather(*(ask() for _ in range(count))), _LIMIT_S)


async def _direct(client: Client, side: Side, tokens: int) -> None:
    async with client.stream(messages=CHAT, max_tokens=tokens) as stream:
        async for delta in stream:
            side.deltas += bool(delta.text)
    assert stream.timing.ttft is not None
    side.ttft.append(stream.timing.ttft)


async def _through(port: int, side: Side, tokens: int) -> None:
    body = f'{{"model":"llm","messages":[{{"role":"user","content":"{CHAT[0]["content"]}"}}],'
    body += f'"max_tokens":{tokens},"stream":true}}'
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = time.perf_counter()
    writer.write((head + body).encode())
    first = None
    while data := await reader.read(65_536):
        if count := data.count(_TEXT):
            first = first or time.perf_counter()
            side.deltas += count
    writer.close()
    if first is None:
        raise ServerError("the gateway sent no text")
    side.ttft.append(first - began)


@asynccontextmanager
async def running_gateway(upstream: str) -> AsyncIterator[tuple[int, int]]:
    """A gateway in a process of its own: port and process id."""
    command = [sys.executable, "-m", "trimodal.cli.app", "gateway", "--port", "0", "--upstream", upstream]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), _LIMIT_S)
            port = int(line.rsplit(":", 1)[1].split("/")[0])
            until = time.monotonic() + _LIMIT_S
            while True:  # it listens before it serves
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    if time.monotonic() > until:
                        raise ServerError("the gateway does not listen") from None
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    break
            yield port, process.pid
        finally:
            process.terminate()
            process.wait(_LIMIT_S)


def _cpu_s(pid: int) -> float:
    """Processor seconds that a process has used."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def show(levels: list[Level], console: Console) -> None:
    """Prints a row for each number of streams."""
    table = make_table(
        "a stream through the gateway, beside gRPC (ms)",
        "streams|TTFT p50|p99|p50 added|p99 added|deltas|deltas/s of one core",
    )
    for level in levels:
        table.add_row(
            str(level.streams),
            f"{milliseconds(level.direct.ttft, 50):.1f}",
            f"{milliseconds(level.direct.ttft, 99):.1f}",
            f"{level.added_ms(50):+.1f}",
            f"{level.added_ms(99):+.1f}",
            f"{level.gateway.deltas} of {level.direct.deltas}",
            f"{level.deltas_per_core_s:,.0f}",
        )
    console.print(table)


def main(
    streams: Annotated[list[int] | None, typer.Option(help="streams at once; repeatable")] = None,
    turns: Annotated[int, typer.Option(min=1, help="rounds of each way")] = TURNS,
    tokens: Annotated[int, typer.Option(min=2, max=500, help="of each answer")] = TOKENS,
) -> None:
    """Measures what the gateway adds to a stream of text."""
    show(asyncio.run(measure(tuple(streams or STREAMS), turns, tokens)), Console(highlight=False))


if __name__ == "__main__":
    typer.run(main)
