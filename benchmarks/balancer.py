"""Makes the tables of docs/scaling_balancer.md: three servers behind HAProxy against one, and prefix hits.

    python -m benchmarks.balancer

All servers run on this machine, on fake engines with set step times, so that its cores are not the limit: it
shows how the balancer spreads, not what an engine computes. Servers, HAProxy and clients are those of the
tests (tests/e2e/fleet), which also restart and kill servers under load.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.affinity import table_of as prefix_table
from benchmarks.affinity import talk
from benchmarks.common import run_command
from benchmarks.tables import make_table
from tests.e2e.fleet.load import Clients, clients, listen, speech
from tests.e2e.fleet.proxy import SERVERS, Proxy, running
from tests.e2e.fleet.servers import STREAMS, fleet
from trimodal.bench.load.generator import Closed, Send, run
from trimodal.bench.load.records import Record
from trimodal.bench.load.statistics import Summary, summarise
from trimodal.bench.targets.taking import sender
from trimodal.errors import ServerError, TrimodalError

CLIENTS = 24  # twice what three servers take at once
WORDS = 16  # of a live stream: some 8 s
CHATS, TURNS, AT_ONCE = 27, 4, 6


def sending(work: Callable[[Callable[[int], None]], Awaitable[object]]) -> Send:
    """Does one request for each number; `work` says how many tokens or pictures just came."""

    async def ask(record: Record, number: int) -> None:
        def came(count: int) -> None:
            record.output_tokens += count
            record.piece()

        await work(came)

    return sender(ask)


async def loop(work: Callable[[Callable[[int], None]], Awaitable[object]], seconds: float) -> Summary:
    """Closed loops of so many clients. Raises: ServerError: one failed."""
    found = summarise(await run(sending(work), Closed(CLIENTS), seconds=seconds, warmup=3.0))
    if found.errors:
        raise ServerError(next(iter(found.errors)))
    return found


async def streams_at_once(at: Clients, count: int) -> list[float]:
    """Opens `count` live streams, one after the other; the median lag of each that told every word."""

    async def one(seed: int) -> float | None:
        await asyncio.sleep(0.05 * seed)
        samples, said = speech(seed, WORDS)
        try:
            heard = await listen(at, samples, resume=False)
        except TrimodalError:
            return None
        return sorted(heard.lags)[len(heard.lags) // 2] if heard.texts == said else None

    found = await asyncio.gather(*(one(seed) for seed in range(count)))
    return sorted(lag for lag in found if lag is not None)


async def serve(at: Clients, proxy: Proxy, seconds: float) -> list[str]:
    """Tokens and images a second, live streams at once and their median lag, requests of each server."""
    before = proxy.counted("stot", "grpc_least")
    texts, images = await loop(at.write, seconds), await loop(at.look, seconds)
    after = proxy.counted("stot", "grpc_least")
    lags = await streams_at_once(at, len(SERVERS) * STREAMS + STREAMS // 2)
    share = " ".join(str(after[name] - before[name]) for name in SERVERS)
    lag = f"{lags[len(lags) // 2]:.2f}" if lags else ""
    return [f"{texts.output_tokens_per_s:.1f}", f"{images.items_per_s:.1f}", str(len(lags)), lag, share]


async def measure(seconds: float, console: Console) -> None:
    """Raises: OperatorError, TrimodalError: what cannot be measured."""
    columns = "servers|tokens/s|images/s|live streams|lag p50 (s)|requests of each"
    table = make_table("behind the balancer", columns)
    with tempfile.TemporaryDirectory(prefix="trimodal-fleet-") as name, fleet(Path(name)) as started:
        for count in (1, len(SERVERS)):
            with running(Path(name), started.addresses(count)) as proxy:
                await asyncio.to_thread(proxy.settle, count)
                async with clients(proxy.grpc) as at:
                    table.add_row(str(count), *await serve(at, proxy, seconds))
                    if count == 1:
                        continue
                    many = {"chats": CHATS, "turns": TURNS, "at_once": AT_ONCE}
                    hits = [
                        await talk("in turn", lambda _: at.marked(), seed=1, **many),
                        await talk("by prefix", lambda one: at.marked(prefix=f"chat-{one}"), seed=2, **many),
                    ]
    console.print(table)
    console.print(prefix_table("prefix cache of three servers", hits))


def main(seconds: Annotated[float, typer.Option(min=1, help="of each rate")] = 10.0) -> None:
    """Measures three servers behind HAProxy against one, and prefix affinity."""
    asyncio.run(measure(seconds, Console(highlight=False)))


if __name__ == "__main__":
    run_command(main)
