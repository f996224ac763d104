"""What experiments share: a server and a gateway of its own, its socket, processor time."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any

import httpx
import typer
from websockets.asyncio.client import ClientConnection

from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.cli.common import one_sentence
from trimodal.client import Client
from trimodal.client.errors import ConnectionLost
from trimodal.client.transports.base import Timeouts
from trimodal.client.transports.grpc import GrpcTransport
from trimodal.errors import ServerError
from trimodal.gateway.upstreams.pool import Upstreams
from trimodal.paths import data_directory
from trimodal.server import ports
from trimodal.server.options import ServerOptions
from trimodal.server.process import TritonServer
from trimodal.server.supervision.stubs import children

Process = subprocess.Popen[bytes]
TICKS = os.sysconf("SC_CLK_TCK")
SAMPLES = data_directory() / "samples" / "speech"


def run_command(main: Callable[..., object]) -> None:
    """Runs an experiment by its command line; what cannot be measured is told by one sentence."""

    @wraps(main)
    def command(**options: Any) -> None:
        with one_sentence("benchmarks"):
            main(**options)

    typer.run(command)


@asynccontextmanager
async def serving(options: ServerOptions, **client: Any) -> AsyncIterator[tuple[TritonServer, Client]]:
    """A server and a client of it, which `client` has further arguments for. Raises: OperatorError."""
    with TritonServer(options) as server:
        async with Client(server.grpc_url, **client) as connected:
            yield server, connected


@asynccontextmanager
async def running_gateway(upstream: str, port: int = 0, *options: str) -> AsyncIterator[tuple[int, int]]:
    """A gateway on this port, 0 for a free one: port and process id. Raises: ServerError."""
    port = port or free_port()
    command = [sys.executable, "-m", "trimodal.cli.app", "gateway", "--port", str(port)]
    async with running([*command, "--upstream", upstream, *options], port) as process:
        yield port, process.pid


def free_port() -> int:
    return ports.choose("127.0.0.1", {"": 0})[""]


async def bench_llm(*arguments: str) -> int:
    """Runs `trimodal bench llm`; its exit code."""
    command = [sys.executable, "-m", "trimodal.cli.app", "bench", "llm", *arguments]
    return await (await asyncio.create_subprocess_exec(*command)).wait()


@asynccontextmanager
async def running(
    command: Sequence[str], port: int, end: Callable[[Process], object] = Process.terminate, **more: Any
) -> AsyncIterator[Process]:
    """The process of a command that listens at this port. Raises: ServerError: it has ended."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, **more) as process:
        try:
            await _listening(port, process)
            yield process
        finally:
            end(process)


async def _listening(port: int, process: Process) -> None:
    """Waits until the process listens at a port of 127.0.0.1. Raises: ServerError: it has ended."""
    while process.poll() is None:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
    raise ServerError(f"{process.args!r:.80} ended with {process.returncode}: see above")


async def until(
    holds: Callable[[], bool | Awaitable[bool]], what: str, limit_s: float = 60.0, every_s: float = 0.1
) -> float:
    """Waits; the event loop's time then. Raises: ServerError: `what` did not come."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + limit_s
    while clock() < deadline:
        held = holds()
        if held if isinstance(held, bool) else await held:
            return clock()
        await asyncio.sleep(every_s)
    raise ServerError(f"{what} did not come within {limit_s:g} s")


@asynccontextmanager
async def pooled(servers: Sequence[TritonServer]) -> AsyncIterator[Client]:
    """A client of servers behind the gateway's balancer."""
    pool = Upstreams([one.grpc_url for one in servers], lambda address: GrpcTransport(address, Timeouts()))
    async with Client(transport=pool) as client:
        pool.start(Timeouts())
        await pool.looked()
        yield client


async def post(client: httpx.AsyncClient, path: str, **content: Any) -> None:
    """Waits for an answer. Raises: ServerError, ConnectionLost: it is none; says why."""
    try:
        (await client.post(path, **content)).raise_for_status()
    except httpx.HTTPStatusError as error:
        raise ServerError(f"HTTP {error.response.status_code}: {error.response.text[:200]}") from None
    except httpx.HTTPError as error:
        raise ConnectionLost(f"{client.base_url}: {str(error) or type(error).__name__}") from None


async def put(socket: ClientConnection, kind: str, **fields: Any) -> None:
    """Sends an event of the realtime API."""
    await socket.send(json.dumps({"type": kind, **fields}))


async def put_audio(socket: ClientConnection, samples: Samples) -> None:
    """Sends audio to the realtime API, 16-bit."""
    pcm = (samples * 32_767).clip(-32_768, 32_767).astype("<i2").tobytes()
    await put(socket, "input_audio_buffer.append", audio=base64.b64encode(pcm).decode())


async def spoken(samples: Samples, seconds: float) -> AsyncIterator[Samples]:
    """Each chunk of so many seconds when its last sample has been spoken; the first sample is spoken now."""
    clock, size = asyncio.get_running_loop().time, round(seconds * SAMPLE_RATE)
    began = clock()
    for at in range(0, len(samples), size):
        chunk = samples[at : at + size]
        await asyncio.sleep(max(0.0, began + (at + len(chunk)) / SAMPLE_RATE - clock()))
        yield chunk


def cpu_s(pid: int) -> float:
    """Processor seconds that a process has used. Raises: ServerError where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        raise ServerError(f"process {pid} is gone") from None
    return (int(fields[11]) + int(fields[12])) / TICKS


def tree_cpu_s(pid: int) -> float:
    """Processor seconds that a process and those below it have used. Raises: ServerError where it is gone."""
    total = cpu_s(pid)
    for child in children(pid):
        with suppress(ServerError):  # it may end meanwhile
            total += tree_cpu_s(child)
    return total
