"""Makes the table "No stall": are there lone requests that wait half a second, by a race in Triton's batcher?

    python -m benchmarks.stall

The race needs a dynamic batcher with a queue policy's timeout; the models here have a batcher and no such
timeout. The engine is a fake: only the way through Triton counts.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from trimodal.bench.common.serving import serving
from trimodal.bench.load.arrivals import Closed
from trimodal.bench.load.generator import run
from trimodal.bench.targets.embedding import Embedding
from trimodal.bench.targets.questions import Listed, Question
from trimodal.client.timing import percentile
from trimodal.server.options import ServerOptions

STALL_S = (0.450, 0.550)


async def measure(requests: int) -> list[float]:
    """Seconds of each request, sent one after the other."""
    options = ServerOptions.on_free_ports("embedding", changes={"embedding": {"engine": "fake"}})
    async with serving(options) as (_, client):
        send = Embedding(client, Listed([Question("a request", 1)])).send
        done = await run(send, Closed(1), requests=requests, warmup=1)
    return [record.latency for record in done.counted]


def main(requests: Annotated[int, typer.Option(min=1, max=1_000_000)] = 3000) -> None:
    """Fails when a request took about 500 ms."""
    latencies = asyncio.run(measure(requests))
    stalled = sum(STALL_S[0] <= latency <= STALL_S[1] for latency in latencies)
    times = ", ".join(f"p{one} {1e3 * (percentile(latencies, one) or 0):.2f} ms" for one in (50, 99, 100))
    print(f"{len(latencies)} requests: {times}; {stalled} within 450 to 550 ms")
    raise SystemExit(bool(stalled))


if __name__ == "__main__":
    typer.run(main)
