"""What running streams notice of vLLM: the first request of each kind, and an engine core that dies.

./scripts/ci/vllm --env        # makes an environment on a CPU, and prints the two names below
python -m benchmarks.llm.vllm_trouble first .venv-vllm/bin/python model_repository/llm/1/checkpoint
python -m benchmarks.llm.vllm_trouble dead .venv-vllm/bin/python model_repository/llm/1/checkpoint
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console

from benchmarks.common import running_gateway, serving, until
from benchmarks.llm.vllm import Checkpoint, Device, Eager, Python, Threads, options
from benchmarks.tables import NARROW, make_table
from trimodal.build_support import operator_errors
from trimodal.client import Client
from trimodal.errors import ServerError
from trimodal.llm.engine_core.supervisor import RESTARTS
from trimodal.server.options import ServerOptions
from trimodal.server.supervision.stubs import children

PLACE = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
FORM = {"type": "json_schema", "json_schema": {"name": "place", "schema": PLACE}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": PLACE}}
# The first is there to compare with: any request takes part of a step.
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "logprobs": {"top_logprobs": 5},
    "penalties": {"presence_penalty": 0.5, "frequency_penalty": 0.5, "repetition_penalty": 1.1},
    "sampled": {"temperature": 1.0, "top_p": 0.9, "top_k": 20, "min_p": 0.05, "seed": 1},
    "bias": {"logit_bias": {"70": 1.0}, "min_tokens": 4},
    "schema": {"response_format": FORM},
    "tools": {"tools": [TOOL], "tool_choice": "required"},
    "prompt logprobs": {"prompt_logprobs": 1},
}
QUESTION: Any = [{"role": "user", "content": "What is the capital of Japan?"}]
STORY = "Write a long story about a lighthouse. It is story"
ANSWER = 1500
LIMIT_S = 300.0

_until = partial(until, what="what is waited for", limit_s=LIMIT_S, every_s=0.01)
Streams = Annotated[int, typer.Option(min=1, help="answers that run meanwhile")]

app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def first(
    python: Python,
    checkpoint: Checkpoint,
    device: Device = "cpu",
    streams: Streams = 8,
    threads: Threads = 0,
    eager: Eager = False,
) -> None:
    """Tells the longest gap in running streams while the first request of each kind is answered."""
    with operator_errors():
        asyncio.run(_first(options(python, checkpoint, device, threads, eager), streams))


async def _first(served: ServerOptions, streams: int) -> None:
    columns = "first request|longest gap before|during|of the request itself"
    table = make_table(f"Gaps in {streams} running streams (ms)", columns, **NARROW)
    async with serving(served) as (_, client):
        for kind, fields in KINDS.items():
            async with _running(client, streams) as times:
                began = time.monotonic()
                await asyncio.sleep(2.0)
                asked = time.monotonic()
                await client.complete(messages=QUESTION, max_tokens=24, **fields)
                ended = time.monotonic()
                await _until(lambda now=ended: all(one[-1] > now for one in times))  # type: ignore[misc]
                gaps = (f"{1e3 * _gap(times, *span):.0f}" for span in ((began, asked), (asked, ended)))
                table.add_row(kind, *gaps, f"{1e3 * (ended - asked):.0f}")
    Console(highlight=False).print(table)


@asynccontextmanager
async def _running(client: Client, count: int) -> AsyncIterator[list[list[float]]]:
    """Streams of long answers that have begun: the times of their deltas."""

    async def read(times: list[float], number: int) -> None:
        async with client.stream(f"{STORY} {number}.", max_tokens=ANSWER, ignore_eos=True) as stream:
            async for _ in stream:
                times.append(time.monotonic())

    times: list[list[float]] = [[] for _ in range(count)]
    tasks = [asyncio.create_task(read(one, number)) for number, one in enumerate(times)]
    try:
        await _until(lambda: all(len(one) > 5 for one in times))
        yield times
        for task in tasks:
            if task.done():
                task.result()  # raises what ended it
                raise ServerError(
                    "a stream ended before its time: the machine is too fast for this many tokens"
                )
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _gap(times: list[list[float]], began: float, ended: float) -> float:
    """The longest in seconds that overlaps a span."""
    return max(
        after - before for one in times for before, after in pairwise(one) if after > began and before < ended
    )


@app.command()
def dead(
    python: Python,
    checkpoint: Checkpoint,
    device: Device = "cpu",
    streams: Streams = 2,
    threads: Threads = 0,
    eager: Eager = False,
    times: Annotated[int, typer.Option(min=1, help="deaths")] = 20,
) -> None:
    """Kills the engine core again and again: when clients and /ready tell, and when it answers again."""
    with operator_errors():
        served = partial(options, python, checkpoint, device, threads, eager)
        late = asyncio.run(_dead(served, streams, times))
    print(
        f"{times - late} of {times}: clients and /ready told within 1 s, answered again, no process defunct"
    )
    raise typer.Exit(bool(late))


async def _dead(served: Callable[[], ServerOptions], streams: int, count: int) -> int:
    """Returns the deaths that were not as they should be."""
    columns = "death|clients told|gateway's /ready|server's /ready|answers again|defunct"
    table, late = make_table("A dead engine core (seconds after it)", columns, **NARROW), 0
    try:
        # After more deaths in five minutes a server gives its engine up.
        for number in range(0, count, RESTARTS):
            async with (
                serving(served()) as (server, _),
                running_gateway(server.grpc_url, 0, "--log-requests", "0") as (port, _),
                httpx.AsyncClient(timeout=LIMIT_S) as http,
            ):
                url = f"http://127.0.0.1:{port}"
                pages = (f"{url}/ready", f"http://{server.health_url}/ready")
                for death in range(number + 1, min(number + RESTARTS, count) + 1):
                    *seconds, left = await _death(http, url, pages, streams)
                    table.add_row(str(death), *(f"{one:.2f}" for one in seconds), str(left))
                    late += bool(left) or max(seconds[:3]) > 1.0
    finally:
        Console(highlight=False).print(table)
    return late


async def _death(http: httpx.AsyncClient, url: str, pages: Sequence[str], streams: int) -> tuple[float, ...]:
    """Seconds to what clients are told, each page's 503, and an answer; processes that are left defunct."""

    async def tells(page: str, ready: bool) -> bool:
        return ((await http.get(page)).status_code == 200) is ready

    async def answers() -> bool:
        body = {"model": "llm", "messages": QUESTION, "max_tokens": 4}
        return (await http.post(f"{url}/v1/chat/completions", json=body)).is_success

    for page in pages:
        await _until(partial(tells, page, True))
    begun = [asyncio.Event() for _ in range(streams)]
    told = [asyncio.create_task(_told(http, url, one)) for one in begun]
    await _until(lambda: all(one.is_set() for one in begun) or any(task.done() for task in told))
    if refused := [task for task in told if task.done()]:
        refused[0].result()
        raise ServerError("a stream was refused before the engine core was killed")
    killed = time.monotonic()
    os.kill(_core(), signal.SIGKILL)
    *at, first, second = await asyncio.gather(*told, *(_until(partial(tells, page, False)) for page in pages))
    again = await _until(answers, every_s=0.2)
    for page in pages:
        await _until(partial(tells, page, True))
    await asyncio.sleep(1.0)
    return (*(one - killed for one in (max(at), first, second, again)), _defunct())


async def _told(http: httpx.AsyncClient, url: str, begun: asyncio.Event) -> float:
    """When a stream told its client of an error. Raises: ServerError: it told none."""
    body = {"model": "llm", "prompt": STORY, "max_tokens": ANSWER, "ignore_eos": True, "stream": True}
    async with http.stream("POST", f"{url}/v1/completions", json=body) as answer:
        async for line in answer.aiter_lines():
            if '"error"' in line:
                return time.monotonic()
            if line:
                begun.set()
    raise ServerError("a stream ended without an error")


def _core() -> int:
    for pid in _below(os.getpid()):
        with suppress(OSError):  # it has ended meanwhile
            if b"EngineCore" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    raise ServerError("no process of vLLM is called EngineCore")


def _defunct() -> int:
    def state(pid: int) -> str:
        with suppress(OSError):
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return ""

    return sum(state(pid) == "Z" for pid in _below(os.getpid()))


def _below(pid: int) -> Iterator[int]:
    """All processes that one has started, and theirs."""
    for child in children(pid):
        yield child
        yield from _below(child)


if __name__ == "__main__":
    app()
