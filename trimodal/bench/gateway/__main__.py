"""Measures what the gateway adds to a stream of text, beside the same requests over gRPC.

    python -m trimodal.bench.gateway
    python -m trimodal.bench.gateway --burst

The engine is a fake one with steps of fixed length: only the way to and from it counts. The ways take turns,
so that they see the same machine. The load comes from this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

from trimodal.bench.common.closed_loop import milliseconds
from trimodal.bench.common.serving import serving
from trimodal.bench.gateway.loads import Burst, Loop, Taken
from trimodal.bench.gateway.process import running_gateway
from trimodal.bench.gateway.ways import Way, over_grpc, over_http
from trimodal.report.console import NARROW, make_table
from trimodal.server.options import ServerOptions

STREAMS = (1, 16, 64)
# 64 streams with a token every 40 ms are 1,600 deltas a second.
STEP_MS, TOKENS, SECONDS, TURNS = 40, (24, 72), 15.0, 6
# All at one moment, with a token every 20 ms: 3,200 deltas a second of 64 streams.
BURST_STEP_MS, BURST_TOKENS = 20, 48
# Answers of one token, to tell the cost of a request from that of its deltas.
_SHORT_STREAMS = 8

Load = Loop | Burst
Results = dict[Load, dict[Way, Taken]]


async def run(
    loads: Sequence[Load],
    step_ms: float,
    turns: int,
    *,
    port: int = 0,
    peer: str = "",
    peer_pid: int | None = None,
) -> Results:
    """Starts a server and a gateway, and measures. Raises: OperatorError when one cannot start.

    Args:
        step_ms: of the engine.
        port: of the gateway; 0: a free one.
        peer: URL of a proxy in front of the gateway.
    """
    engine = {"engine": "fake", "fake_step_ms": f"{step_ms:g}", "fake_answer": "word " * 200}
    options = ServerOptions.on_free_ports("llm", changes={"llm": engine | {"max_num_seqs": "64"}})
    async with (
        serving(options, connections=4) as (server, client),
        running_gateway(server.grpc_url, port) as (port, pid),
    ):
        direct = Way("gRPC", over_grpc(client))
        gateway = Way("gateway", over_http(f"http://127.0.0.1:{port}"), pid, direct)
        ways = [direct, gateway]
        if peer:
            ways.append(Way("peer", over_http(peer), peer_pid, gateway))
        return await measure(loads, ways, turns)


async def measure(loads: Sequence[Load], ways: Sequence[Way], turns: int) -> Results:
    """Puts every load on every way in turn. Raises: ServerError when an answer fails."""
    results: Results = {load: {way: Taken() for way in ways} for load in loads}
    for load, taken in results.items():
        for turn in range(turns + 1):
            for way in ways:
                await load.run(way, taken[way] if turn else Taken(), turn)  # the first warms up
    return results


def show(results: Results, console: Console) -> None:
    """Prints a row for each way under each load."""
    table = make_table(
        "TTFT and gaps between texts (ms)",
        "streams|side|requests|TTFT p50|p99|added p50|p99|gap p50|p99|deltas/s|a core's",
        **NARROW,
    )
    for load, taken in results.items():
        for way, mine in taken.items():
            before = taken[way.after] if way.after else None
            table.add_row(
                str(load.streams),
                way.name,
                str(len(mine.ttft)),
                *(f"{milliseconds(mine.ttft, percent):.1f}" for percent in (50, 99)),
                *(f"{mine.added_ms(before, percent):+.1f}" if before else "" for percent in (50, 99)),
                *(f"{milliseconds(mine.gaps, percent):.1f}" for percent in (50, 99)),
                f"{mine.deltas_per_s:,.0f}",
                f"{mine.deltas_per_core_s:,.0f}" if mine.cpu_s else "",
            )
    console.print(table)


def cost(short: Taken, long: Taken) -> str:
    """Says what a request of one token costs, and what each further delta of longer ones does."""
    rest_s = long.cpu_s - short.cpu_ms / 1e3 * len(long.ttft)
    delta_us = 1e6 * rest_s / max(1, long.deltas - len(long.ttft))
    return f"{short.cpu_ms:.2f} ms of a core for a request of one token, {delta_us:.0f} µs for each more"


def main(
    streams: Annotated[list[int] | None, typer.Option(help="clients at once; repeatable")] = None,
    turns: Annotated[int, typer.Option(min=1, help="rounds of each way")] = TURNS,
    seconds: Annotated[float, typer.Option(min=0.1, help="of each round")] = SECONDS,
    burst: Annotated[bool, typer.Option("--burst", help="all requests at one moment instead")] = False,
    gateway_port: Annotated[int, typer.Option(help="for a proxy in front of it; 0 picks a free one")] = 0,
    peer_url: Annotated[str, typer.Option(help="http://host:port of such a proxy")] = "",
    peer_pid: Annotated[int | None, typer.Option(help="of its process, to tell what it costs")] = None,
) -> None:
    """Measures what the gateway adds to a stream of text."""
    console = Console(highlight=False)
    counts = streams or STREAMS
    if burst:
        loads: list[Load] = [Burst(count, BURST_TOKENS) for count in counts]
        step_ms = BURST_STEP_MS
    else:
        loads = [Loop(count, TOKENS, STEP_MS / 1e3, seconds) for count in counts]
        loads.append(Loop(_SHORT_STREAMS, (1, 1), STEP_MS / 1e3, seconds))
        step_ms = STEP_MS
    measuring = run(loads, step_ms, turns, port=gateway_port, peer=peer_url, peer_pid=peer_pid)
    results = asyncio.run(measuring)
    if burst:
        show(results, console)
        return
    *long, short = loads
    show({load: results[load] for load in long}, console)
    for way, taken in results[short].items():
        if way.pid is not None:
            console.print(f"{way.name}: {cost(taken, results[long[-1]][way])}")


if __name__ == "__main__":
    typer.run(main)
