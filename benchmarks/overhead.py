"""Makes the table "The load generator": what it measures of answers whose delays are known.

    python -m benchmarks.overhead --seconds 8

There is no server, the pieces come out of this very process: what is late is the generator's event loop.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.common import run_command
from benchmarks.tables import NARROW, make_table
from trimodal.bench.load.generator import Closed, run
from trimodal.bench.load.records import Record
from trimodal.bench.load.statistics import Summary, summarise
from trimodal.bench.targets.taking import sender


async def measure(streams: int, seconds: float, ttft: float, gap: float, pieces: int) -> Summary:
    """Closed loops of answers whose pieces come when they are due; times in seconds."""

    async def ask(record: Record, number: int) -> None:
        clock = asyncio.get_running_loop().time
        for piece in range(pieces):
            await asyncio.sleep(max(0.0, record.sent + ttft + piece * gap - clock()))
            record.piece()
        record.output_tokens = pieces

    return summarise(await run(sender(ask), Closed(streams), seconds=seconds, warmup=1.0))


def main(
    streams: Annotated[int, typer.Option(min=1, max=4096)] = 64,
    seconds: Annotated[float, typer.Option(min=0.1)] = 10.0,
    ttft_ms: Annotated[float, typer.Option(min=0)] = 100.0,
    gap_ms: Annotated[float, typer.Option(min=0.1)] = 25.0,
    pieces: Annotated[int, typer.Option(min=2)] = 40,
) -> None:
    """Measures how far the load generator's times are from the known ones."""
    columns = "streams|requests/s|pieces/s|of a core|TTFT +p50|+p99|ITL +p50|+p99|TPOT +p50|+p99"
    table = make_table("ms above the known delay", columns, **NARROW)
    one = asyncio.run(measure(streams, seconds, ttft_ms / 1e3, gap_ms / 1e3, pieces))
    cells = [f"{one.requests_per_s:.1f}", f"{one.output_tokens_per_s:.0f}", f"{one.cpu_share:.0%}"]
    for name, known in {"ttft_ms": ttft_ms, "itl_ms": gap_ms, "tpot_ms": gap_ms}.items():
        percentiles = one.metrics[name].percentiles
        cells += [f"{percentiles[percent] - known:+.2f}" for percent in ("p50", "p99")]
    table.add_row(str(streams), *cells)
    Console(highlight=False, width=130).print(table)


if __name__ == "__main__":
    run_command(main)
