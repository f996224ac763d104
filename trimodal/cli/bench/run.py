"""Runs one load test, prints what came of it, and writes its figures where that is wanted."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from trimodal.cli.common import on_interrupt, one_sentence

if TYPE_CHECKING:
    from trimodal.bench.load.slo import Slo
    from trimodal.bench.scenarios.server import Measurement

# Measures until the event is set; takes what is told of the progress, too.
Measure = Callable[[asyncio.Event, Callable[[str], object]], Awaitable["Measurement"]]


def run_load(measure: Measure, slo: Slo, json: Path | None) -> None:
    """Runs a load test and shows it. A run that ended early is exit code 1.

    Ctrl-C ends it with what was measured; a second one ends the command at once.
    """
    from rich.console import Console

    from trimodal.bench.report import names_of, print_tables, write_json

    console, progress = Console(highlight=False), Console(stderr=True, highlight=False)

    async def main() -> Measurement:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()

        def interrupted() -> None:
            loop.remove_signal_handler(signal.SIGINT)
            console.print("interrupted: what was measured so far is shown", style="dim")
            stop.set()

        with on_interrupt(loop, interrupted):
            return await measure(stop, lambda text: progress.print(text, style="dim"))

    with one_sentence("bench"):
        found = asyncio.run(main())
        print_tables(found.title, found.unit, found.results, slo, console)
        if json:
            cases = [{**names_of(one), **asdict(one.summary)} for one in found.results]
            write_json(json, {"facts": dict(found.facts), "slo": slo.text, "cases": cases})
        stopped = next((one.summary.stopped for one in found.results if one.summary.stopped), "")
    if stopped:
        typer.echo(f"bench: the run ended early: {stopped}", err=True)
        raise typer.Exit(130 if stopped == "interrupted" else 1)
