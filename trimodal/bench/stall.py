"""`trimodal bench stall`: finds lone requests that wait for half a second, by a race in Triton's batcher.

The race needs a dynamic batcher with a queue policy's timeout; the models here have a batcher
and no such timeout. The engine is a fake: only the way through Triton counts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from trimodal.bench.common.closed_loop import milliseconds
from trimodal.bench.common.serving import serving
from trimodal.server.options import ServerOptions

STALL_S = (0.450, 0.550)
PERCENTS = (50.0, 99.0, 99.9, 100.0)


async def measure(requests: int, console: Console) -> dict[str, Any]:
    """Sends the requests one after the other and prints the figures; also as plain data."""
    options = ServerOptions.on_free_ports("embedding", changes={"embedding": {"engine": "fake"}})
    latencies = []
    async with serving(options) as (_, client):
        await client.embed(["the first one opens the connection"])
        for number in range(requests):
            at = time.perf_counter()
            await client.embed([f"request {number}"])
            latencies.append(time.perf_counter() - at)
    figures = summarise_stalls(latencies)
    console.print(
        f"{requests} sequential requests to a trivial model with dynamic batching: "
        + ", ".join(f"p{percent:g} {figures[f'p{percent:g}']:.2f} ms" for percent in PERCENTS[:-1])
        + f", max {figures['p100']:.1f} ms; {figures['stalled']} within 450 to 550 ms"
    )
    return figures


def summarise_stalls(latencies: Sequence[float]) -> dict[str, Any]:
    """Percentiles in milliseconds of latencies in seconds, and how many lie where the race puts them."""
    stalled = sum(STALL_S[0] <= latency <= STALL_S[1] for latency in latencies)
    percentiles = {f"p{percent:g}": milliseconds(latencies, percent) for percent in PERCENTS}
    return {**percentiles, "requests": len(latencies), "stalled": stalled}
