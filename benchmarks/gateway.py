"""Makes the table "The gateway: what OpenAI's API adds": a stream of text over gRPC and through the gateway.

    python -m benchmarks.gateway
    python -m benchmarks.gateway --burst

The engine is a fake one with steps of fixed length: only the way to and from it counts. The sides take turns,
so that they see the same machine. The load comes from this process.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.common import cpu_s, run_command, running_gateway, serving
from benchmarks.tables import NARROW, make_table
from trimodal.bench.load.generator import Closed, Send, run
from trimodal.bench.load.records import Record
from trimodal.bench.load.statistics import Summary, summarise
from trimodal.bench.targets.http import HttpLlm
from trimodal.bench.targets.llm import GrpcLlm
from trimodal.bench.targets.questions import Question, listed
from trimodal.errors import ServerError
from trimodal.server.options import ServerOptions

# 64 streams with a token every 40 ms are 1,600 deltas a second.
STEP_S = 0.04
# All at one moment, with a token every 20 ms: 3,200 deltas a second of 64 streams.
BURST_STEP_S, BURST_TOKENS = 0.02, 48
PERCENTS = ("p50", "p99")


@dataclass
class Side:
    """One way to the engine, and its runs of the generator.

    Attributes:
        pid: of the process whose time it costs; None: of none.
        after: the side that it adds to.
    """

    name: str
    send: Send
    pid: int | None = None
    after: Side | None = None
    runs: list[Any] = field(default_factory=list)
    cpu_s: float = 0.0

    def summary(self) -> Summary:
        """Raises: ServerError: an answer failed."""
        found = summarise(self.runs)
        if found.errors:
            raise ServerError(f"{self.name}: {next(iter(found.errors))}")
        return found


async def measure(side: Side, streams: int, seconds: float) -> None:
    """One turn of a side: closed loops for `seconds`; 0: all requests at one moment."""

    async def paused(number: int) -> Record:
        # Without a pause all would ask just after a step, and the wait for the next would hide what is added.
        await asyncio.sleep(random.Random(number).uniform(0, 2 * STEP_S))
        return await side.send(number)

    before = cpu_s(side.pid) if side.pid else 0.0
    if seconds:
        side.runs.append(await run(paused, Closed(streams), seconds=seconds, warmup=2.0))
    else:
        side.runs.append(await run(side.send, itertools.repeat(0.0, streams), requests=streams))
    side.cpu_s += cpu_s(side.pid) - before if side.pid else 0.0


def row(streams: int, side: Side) -> list[str]:
    """TTFT, what is added to it, gaps between texts, and deltas that a core forwards, with their requests."""
    found = side.summary()
    ttft, gaps = (found.metrics.get(name) for name in ("ttft_ms", "itl_ms"))
    before = side.after.summary().metrics["ttft_ms"] if side.after else None
    assert ttft is not None
    times = {percent: ttft.percentiles[percent] for percent in PERCENTS}
    added = {one: times[one] - before.percentiles[one] for one in PERCENTS} if before else {}
    pieces = sum(len(record.pieces) for run in side.runs for record in run.records)
    return [
        str(streams),
        side.name,
        str(found.ok),
        *(f"{value:.1f}" for value in times.values()),
        *(f"{added[percent]:+.1f}" if added else "" for percent in PERCENTS),
        *(f"{gaps.percentiles[percent]:.1f}" if gaps else "" for percent in PERCENTS),
        f"{found.output_tokens_per_s:,.0f}",
        f"{pieces / side.cpu_s:,.0f}" if side.cpu_s else "",
    ]


def main(
    streams: Annotated[list[int], typer.Option(help="clients at once; repeatable")] = [1, 16, 64],  # noqa: B006
    tokens: Annotated[tuple[int, int], typer.Option(help="fewest and most of an answer")] = (24, 72),
    turns: Annotated[int, typer.Option(min=1, help="rounds of each side; one more warms up")] = 6,
    seconds: Annotated[float, typer.Option(min=0.1, help="of each round")] = 15.0,
    burst: Annotated[bool, typer.Option("--burst", help="all requests at one moment instead")] = False,
    gateway_port: Annotated[int, typer.Option(help="for a proxy in front of it; 0 picks a free one")] = 0,
    peer_url: Annotated[str, typer.Option(help="http://host:port of such a proxy")] = "",
    peer_pid: Annotated[int | None, typer.Option(help="of its process, to measure what it costs")] = None,
) -> None:
    """Measures what the gateway adds to a stream of text."""
    columns = "streams|side|requests|TTFT p50|p99|added p50|p99|gap p50|p99|deltas/s|a core's"
    table = make_table("TTFT and gaps between texts (ms)", columns, **NARROW)
    if burst:
        tokens, seconds = (BURST_TOKENS, BURST_TOKENS), 0.0
    step_s = BURST_STEP_S if burst else STEP_S
    rng = random.Random(0)
    asked = listed([Question("what is a lambda?", rng.randint(*tokens)) for _ in range(1000)])
    engine = {"engine": "fake", "fake_step_ms": f"{1e3 * step_s:g}", "fake_answer": "word " * 200}
    options = ServerOptions.on_free_ports("llm", changes={"llm": engine | {"max_num_seqs": "64"}})

    async def run_all() -> None:
        async with AsyncExitStack() as stack:
            server, client = await stack.enter_async_context(serving(options, connections=4))
            port, pid = await stack.enter_async_context(running_gateway(server.grpc_url, gateway_port))
            sides = [Side("gRPC", GrpcLlm(client, asked).send)]
            others = [("gateway", f"http://127.0.0.1:{port}", pid), ("peer", peer_url, peer_pid)]
            for name, url, of in others if peer_url else others[:1]:
                target = HttpLlm(f"{url}/v1", asked)
                stack.push_async_callback(target.aclose)
                sides.append(Side(name, target.send, of, after=sides[-1]))
            for count in streams:
                for turn in range(turns + 1):
                    for side in sides:
                        if turn < 2:  # the first warms up
                            side.runs, side.cpu_s = [], 0.0
                        await measure(side, count, seconds)
                for side in sides:
                    table.add_row(*row(count, side))

    asyncio.run(run_all())
    Console(highlight=False, width=120).print(table)


if __name__ == "__main__":
    run_command(main)
