"""Measures what the load generator itself adds: answers of known delays, in this process and over HTTP.

    python -m trimodal.bench.overhead --streams 64

"alone" has no server: what is late there is the generator's event loop. "HTTP" is a server of known delays in
a process of its own, so the client's HTTP, the server's and the machine's scheduling are in it.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.console import Console

from trimodal.bench.load.arrivals import Closed
from trimodal.bench.load.generator import Run, Send, run
from trimodal.bench.load.lengths import parse_lengths
from trimodal.bench.load.statistics import Summary, summarise
from trimodal.bench.report.tables import number, percent
from trimodal.bench.targets.http import HttpLlm
from trimodal.bench.targets.known import Delays, known_server
from trimodal.bench.targets.questions import Mix, Questions
from trimodal.bench.targets.taking import Taking, taken
from trimodal.report.console import print_table
from trimodal.report.values import Table


def sleeping(delays: Delays) -> Send:
    """Pieces that come when they are due, out of this very process."""

    async def ask(taking: Taking) -> None:
        clock = asyncio.get_running_loop().time
        for piece in range(delays.pieces):
            due = taking.sent + delays.ttft + piece * delays.gap
            await asyncio.sleep(max(0.0, due - clock()))
            taking.piece()
        taking.output_tokens = delays.pieces

    return lambda _: taken(ask)


async def measure(delays: Delays, streams: int, seconds: float) -> dict[str, Summary]:
    """Both ways, one after the other."""

    async def load(send: Send) -> Run:
        return await run(send, Closed(streams), seconds=seconds, warmup=1.0)

    found = {"alone": summarise(await load(sleeping(delays)))}
    lengths = parse_lengths(str(delays.pieces), "--tokens")
    questions = Questions(Mix(parse_lengths("64", ""), lengths))
    questions.prepare(10_000)
    with known_server(delays) as address:
        target = HttpLlm(f"http://{address}", questions)
        try:
            found["HTTP"] = summarise(await load(target.send))
        finally:
            await target.aclose()
    return found


def table(found: dict[str, Summary], delays: Delays, streams: int) -> Table:
    """How far the measured times are from the known ones."""
    known = {
        "ttft_ms": 1e3 * delays.ttft,
        "itl_ms": 1e3 * delays.gap,
        "tpot_ms": 1e3 * delays.gap,
        "latency_ms": 1e3 * delays.latency,
    }
    columns = ["way", "req/s", "pieces/s", "core used"]
    for name in known:
        short = name.removesuffix("_ms").replace("latency", "E2E").upper()
        columns += [f"{short} +p50", "+p99"]
    rows = []
    for way, one in found.items():
        cells = [way, number(one.requests_per_s), number(one.output_tokens_per_s), percent(one.cpu_share)]
        for name, value in known.items():
            percentiles = one.metrics[name].percentiles
            cells += [f"{percentiles[label].value - value:+.2f}" for label in ("p50", "p99")]
        rows.append(cells)
    title = (
        f"{streams} streams; TTFT {1e3 * delays.ttft:g} ms, a piece every {1e3 * delays.gap:g} ms, "
        f"{delays.pieces} pieces"
    )
    return Table(title, columns, rows, "ms above the known delay.")


def main(
    streams: Annotated[int, typer.Option(min=1, max=4096)] = 64,
    seconds: Annotated[float, typer.Option(min=0.1)] = 10.0,
    ttft_ms: Annotated[float, typer.Option(min=0)] = 100.0,
    gap_ms: Annotated[float, typer.Option(min=0.1)] = 25.0,
    pieces: Annotated[int, typer.Option(min=2)] = 40,
) -> None:
    """Measure the load generator's own overhead."""
    delays = Delays(ttft_ms / 1e3, gap_ms / 1e3, pieces)
    found = asyncio.run(measure(delays, streams, seconds))
    print_table(table(found, delays, streams), Console(highlight=False, width=130))


if __name__ == "__main__":
    typer.run(main)
