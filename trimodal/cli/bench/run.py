"""Runs one load test, prints what came of it, and writes the files that are wanted."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import typer

from trimodal.cli.bench.options import LoadOptions
from trimodal.cli.common import on_interrupt, one_sentence

if TYPE_CHECKING:
    from rich.console import Console

    from trimodal.bench.scenarios.server import LoadTest, Measurement
    from trimodal.explain.requests import Kind
    from trimodal.report.values import Section

Found = TypeVar("Found")


def run_load(
    kind: Kind, load: LoadOptions, test: LoadTest, measure: Callable[[LoadTest], Awaitable[Measurement]]
) -> None:
    """Runs a load test; Ctrl-C ends it with what was measured. A run that ended early is exit code 1.

    Args:
        kind: whose requests they are.
    """
    from rich.console import Console

    from trimodal.bench.report.results import doubts, print_tables, report
    from trimodal.report.html import write_html
    from trimodal.report.plots import check_plots

    console = Console(highlight=False)
    test = replace(test, url=load.url, model=load.model, metrics=load.server_metrics)
    with one_sentence("bench"):
        if load.html:
            check_plots("--html")
        found = run_until_interrupt(console, lambda stop, tell: measure(replace(test, stop=stop, tell=tell)))
        print_tables(found.title, found.unit, found.results, test.plan.slo, console)
        for sentence in doubts(found.results):
            console.print(sentence, markup=False, style="yellow")
        _write(load, found, test.plan.slo.text)
        if load.html:
            page = report(found.title, found.unit, found.results, test.plan.slo, found.facts)
            if load.waterfall:
                page = replace(page, sections=[*page.sections, *_explained(kind, test)])
            write_html(load.html, page)
        end(next((one.summary.stopped for one in found.results if one.summary and one.summary.stopped), ""))


def run_until_interrupt(
    console: Console, measure: Callable[[asyncio.Event, Callable[[str], object]], Awaitable[Found]]
) -> Found:
    """Runs a measurement, whose event Ctrl-C sets; a second one ends the command at once.

    Args:
        measure: of the event, and of what takes a line of progress.
    """
    from rich.console import Console

    async def main() -> Found:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        progress = Console(stderr=True, highlight=False)

        def interrupted() -> None:
            loop.remove_signal_handler(signal.SIGINT)
            console.print("interrupted: what was measured so far is shown", style="dim")
            stop.set()

        with on_interrupt(loop, interrupted):
            return await measure(stop, lambda text: progress.print(text, style="dim"))

    return asyncio.run(main())


def end(stopped: str) -> None:
    """Ends the command with an error where the run ended early."""
    if stopped:
        typer.echo(f"bench: the run ended early: {stopped}", err=True)
        raise typer.Exit(130 if stopped == "interrupted" else 1)


def _write(load: LoadOptions, found: Measurement, slo: str) -> None:
    from trimodal.bench.report.files import write_csv, write_json, write_jsonl
    from trimodal.bench.report.tables import names_of

    summaries = [(names_of(result), result.summary) for result in found.results if result.summary]
    if load.json:
        cases = [{**names, **summary.plain()} for names, summary in summaries]
        write_json(load.json, {"facts": dict(found.facts), "slo": slo, "cases": cases})
    if load.csv:
        write_csv(load.csv, summaries)
    if load.jsonl:
        write_jsonl(load.jsonl, ((names_of(one), run.records) for one in found.results for run in one.runs))


def _explained(kind: Kind, test: LoadTest) -> list[Section]:
    """The sections of one more request, on the server at `url` or, as the load's has ended, on another."""
    from trimodal.explain.requests import Question
    from trimodal.explain.run import OwnServer, Server, explain, started
    from trimodal.explain.show.figure import sections

    question = Question(kind)

    async def main() -> list[Section]:
        if test.url:
            key = os.environ.get("TRIMODAL_OPERATOR_KEY", "")
            return sections(await explain(question, Server(test.url.removeprefix("grpc://"), key)))
        async with started(OwnServer(test.profile, test.changes), question) as server:
            return sections(await explain(question, server))

    return asyncio.run(main())
