"""Adds the options of load and report to a bench command, reads them, and writes what was measured."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from trimodal.cli.bench.common import check_writable
from trimodal.cli.common import on_interrupt, one_sentence

if TYPE_CHECKING:
    from trimodal.bench.drive.place import Drive, Measured
    from trimodal.bench.load.lengths import Lengths
    from trimodal.bench.load.plan import LoadPlan
    from trimodal.bench.load.traces import Traced
    from trimodal.bench.targets.questions import Mix
    from trimodal.explain.requests import Kind
    from trimodal.report.values import Section
    from trimodal.server.options import Profile

_LOAD, _SERVER, _REPORT = "Load", "Server", "Report"
_RUN_SECONDS = "Of each case in a load test; 0: 30, or to the trace's end."


def _option(*names: str, panel: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


@dataclass
class LoadOptions:
    """What `with_load` adds to a command: a load test instead of rounds side by side."""

    load: Annotated[str, _option(panel=_LOAD, help="closed, constant, poisson, gamma or trace.")] = ""
    rate: Annotated[
        list[float], _option(panel=_LOAD, help="Requests a second of an open loop; repeatable: a sweep.")
    ] = ()  # type: ignore[assignment]
    burstiness: Annotated[
        float, _option(panel=_LOAD, help="Of gamma arrivals: 1 is Poisson, less comes in bursts.")
    ] = 1.0
    trace: Annotated[
        Path | None, _option(panel=_LOAD, help="Azure LLM inference CSV or Mooncake JSON lines.")
    ] = None
    trace_speed: Annotated[float, _option(panel=_LOAD, min=0.001, help="2: in half the time.")] = 1.0
    trace_scale: Annotated[float, _option(panel=_LOAD, min=0.001, help="Of the trace's lengths.")] = 1.0
    run_seconds: Annotated[
        float,
        _option("--seconds", panel=_LOAD, min=0, max=86_400, help=_RUN_SECONDS),
    ] = 0.0
    requests: Annotated[
        int, _option(panel=_LOAD, min=0, max=1_000_000, help="Instead of seconds: of each case.")
    ] = 0
    warmup: Annotated[
        float, _option(panel=_LOAD, min=0, help="Not counted: seconds, with --requests a number of them.")
    ] = 0.0
    load_rounds: Annotated[
        int, _option(panel=_LOAD, min=1, max=50, help="Of each case; sides take turns in each.")
    ] = 1
    max_in_flight: Annotated[
        int, _option(panel=_LOAD, min=1, max=100_000, help="Of an open loop; more are not sent, and counted.")
    ] = 4096
    timeout: Annotated[float, _option(panel=_LOAD, min=0.1, max=3600, help="Of a request, seconds.")] = 60.0
    seed: Annotated[int, _option(panel=_LOAD, min=0, help="Of arrivals, prompts and shares.")] = 0
    url: Annotated[
        str,
        _option(panel=_SERVER, help="host:port of gRPC of a running server; else one is started."),
    ] = ""
    model: Annotated[str, _option(panel=_SERVER, help="Its name on the server.")] = ""
    server_metrics: Annotated[
        str, _option(panel=_SERVER, help="host:port of its metrics page, with --url: caches, speculation.")
    ] = ""
    slo: Annotated[
        str, _option(panel=_REPORT, help="As ttft_ms<=500,itl_ms<=60,p99_ms<=2000,error_rate<=0.01.")
    ] = ""
    cost_per_hour: Annotated[
        float, _option(panel=_REPORT, min=0, help="Of the machine, for the cost of requests and tokens.")
    ] = 0.0
    html: Annotated[Path | None, _option(panel=_REPORT, help="Report with plots, in one file.")] = None
    waterfall: Annotated[
        bool,
        _option(panel=_REPORT, help="With --html: where one more request's time goes (trimodal explain)."),
    ] = False
    csv: Annotated[Path | None, _option(panel=_REPORT, help="A line for each case and side.")] = None
    jsonl: Annotated[Path | None, _option(panel=_REPORT, help="A line for each request.")] = None

    @property
    def wanted(self) -> bool:
        """Whether a load test is asked for, rather than rounds side by side."""
        return bool(self.load or self.url or self.rate or self.trace)

    def check(self, always: bool) -> None:
        """Raises: typer.BadParameter: an option without its load, or a file that cannot be written."""
        for option in ("html", "csv", "jsonl"):
            if path := getattr(self, option):
                check_writable(f"--{option}", path)
        if self.waterfall and (not self.html or self.url.startswith("http")):
            raise typer.BadParameter("--waterfall is a part of --html's report, of a server asked over gRPC")
        if always or self.wanted:
            return
        defaults = LoadOptions()
        for option in ("slo", "html", "csv", "jsonl", "requests", "warmup", "cost_per_hour", "run_seconds"):
            if getattr(self, option) != getattr(defaults, option):
                name = option.replace("_", "-")
                raise typer.BadParameter(f"--{name} is of a load test: say --load closed, or which load")

    def plan(self, clients: list[int]) -> LoadPlan:
        """The plan, with so many clients where the load is closed loops. Raises: SettingsError."""
        from trimodal.bench.load.plan import LoadPlan
        from trimodal.bench.load.slo import parse_slo

        load: Any = self.load or ("trace" if self.trace else "poisson" if self.rate else "closed")
        return LoadPlan(
            load=load,
            sizes=tuple(clients) if load == "closed" else tuple(self.rate),
            burstiness=self.burstiness,
            trace=self.traced,
            seconds=self.run_seconds,
            requests=self.requests,
            warmup=self.warmup,
            max_in_flight=self.max_in_flight,
            rounds=self.load_rounds,
            timeout=self.timeout,
            slo=parse_slo(self.slo),
            cost_per_hour=self.cost_per_hour,
            seed=self.seed,
        )

    @property
    def traced(self) -> list[Traced]:
        """The trace's requests. Raises: SettingsError."""
        from trimodal.bench.load.traces import read_trace

        return read_trace(self.trace, self.trace_speed, self.trace_scale) if self.trace else []


def with_load(command: Callable[..., Any], *, always: bool = False) -> Callable[..., Any]:
    """Makes typer see the options of `LoadOptions` beside the command's own, which gets them as `load`.

    Args:
        always: the command does nothing but load tests.
    """
    own = inspect.signature(command, eval_str=True)
    hints = get_type_hints(LoadOptions, include_extras=True)
    shared = inspect.signature(LoadOptions).parameters
    added = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=hints[name],
            default=[] if name == "rate" else shared[name].default,
        )
        for name in shared
    ]
    kept = [one for name, one in own.parameters.items() if name != "load"]
    if "seconds" in own.parameters:  # the command's own, of a round or a stream
        (index,) = (at for at, one in enumerate(added) if one.name == "run_seconds")
        hint = Annotated[float, _option("--run-seconds", panel=_LOAD, min=0, max=86_400, help=_RUN_SECONDS)]
        added[index] = added[index].replace(annotation=hint)

    @wraps(command)
    def called(**given: Any) -> Any:
        options = LoadOptions(**{name: given.pop(name) for name in shared})
        options.check(always)
        return command(**given, load=options)

    called.__signature__ = own.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
    # typer reads these too, and `wraps` copied the command's own.
    called.__annotations__ = {one.name: one.annotation for one in (*kept, *added)}
    return called


def lengths(texts: list[str], option: str, least: int = 1) -> list[Lengths]:
    """Raises: typer.BadParameter."""
    from trimodal.bench.load.lengths import parse_lengths
    from trimodal.errors import SettingsError

    try:
        return [parse_lengths(text, option, least) for text in texts]
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from None


def mix_of(
    load: LoadOptions,
    prompt: Lengths,
    answer: Lengths,
    shared_prefix: str = "",
    cancel_share: float = 0.0,
    prompts: Path | None = None,
    repeat_share: float = 0.0,
) -> Mix:
    """What is asked. Raises: SettingsError: a file cannot be read, or the shared prefix is none."""
    from trimodal.bench.llm.sides import read_lines
    from trimodal.bench.targets.questions import Mix

    share, tokens = _shared(shared_prefix)
    return Mix(
        prompt,
        answer,
        shared_share=share,
        shared_tokens=tokens,
        cancel_share=cancel_share,
        repeat_share=repeat_share,
        lines=read_lines(prompts) if prompts else (),
        trace=load.traced,
        scale=load.trace_scale,
    )


def _explained(
    kind: Kind,
    url: str,
    profile: Profile = "cpu",
    changes: Mapping[str, Mapping[str, str]] | None = None,
    **_: object,
) -> list[Section]:
    """The sections of one more request, on the server at `url` or, as the load's has ended, on another."""
    from trimodal.explain.requests import Question
    from trimodal.explain.run import OwnServer, Server, explain, started
    from trimodal.explain.show.figure import sections

    question = Question(kind)

    async def main() -> list[Section]:
        if url:
            key = os.environ.get("TRIMODAL_OPERATOR_KEY", "")
            return sections(await explain(question, Server(url.removeprefix("grpc://"), key)))
        async with started(OwnServer(profile, changes or {}), question) as server:
            return sections(await explain(question, server))

    return asyncio.run(main())


def _shared(text: str) -> tuple[float, int]:
    if not text:
        return 0.0, 0
    share, _, tokens = text.partition(":")
    try:
        found = float(share), int(tokens)
    except ValueError:
        found = -1.0, 0
    if not (0 <= found[0] <= 1 and 1 <= found[1] <= 1_000_000):
        raise typer.BadParameter(f"--shared-prefix {text}: SHARE:TOKENS is needed, as 0.5:400")
    return found


def run_load(
    kind: Kind,
    load: LoadOptions,
    plan: LoadPlan,
    measuring: Callable[[Drive], Awaitable[Measured]],
    json_: Path | None,
    **more: Any,
) -> None:
    """Runs a load test; Ctrl-C ends it with what was measured. A run that ended early is exit code 1.

    Args:
        kind: whose requests they are.
        measuring: the load test, of a `Drive`, which `more` has further fields for.
    """
    from rich.console import Console

    from trimodal.bench.drive.place import Drive
    from trimodal.bench.report.files import write_csv, write_json, write_jsonl
    from trimodal.bench.report.results import doubts, report
    from trimodal.bench.report.tables import (
        cost_table,
        error_table,
        main_table,
        names_of,
        ratio_table,
        server_table,
        slo_table,
    )
    from trimodal.report.console import print_table
    from trimodal.report.html import write_html
    from trimodal.report.plots import check_plots

    console = Console(highlight=False)
    if json_:
        check_writable("--json", json_)

    async def main() -> Measured:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def interrupted() -> None:
            # A second Ctrl-C ends the command at once.
            loop.remove_signal_handler(signal.SIGINT)
            console.print("interrupted: what was measured so far is shown", style="dim")
            stop.set()

        told = Console(stderr=True, highlight=False)
        drive = Drive(
            plan,
            url=load.url,
            model=load.model,
            metrics=load.server_metrics,
            stop=stop,
            tell=lambda text: told.print(text, style="dim"),
            **more,
        )
        with on_interrupt(loop, interrupted):
            return await measuring(drive)

    with one_sentence("bench"):
        if load.html:
            check_plots("--html")
        found = asyncio.run(main())
        unit, results = found.unit, found.results
        tables = [
            main_table(found.title, unit, results, plan.slo),
            ratio_table(unit, results),
            slo_table(results),
            server_table(results),
            cost_table(unit, results),
            error_table(results),
        ]
        for table in tables:
            if table:
                print_table(table, console)
        for sentence in doubts(results):
            console.print(sentence, markup=False, style="yellow")
        summaries = [(names_of(result), result.summary) for result in results if result.summary]
        if json_:
            cases = [{**names, **summary.plain()} for names, summary in summaries]
            write_json(json_, {"facts": dict(found.facts), "slo": plan.slo.text, "cases": cases})
        if load.csv:
            write_csv(load.csv, summaries)
        if load.jsonl:
            records = ((names_of(one), run.records) for one in results for run in one.runs)
            write_jsonl(load.jsonl, records)
        if load.html:
            page = report(found.title, unit, results, plan.slo, found.facts)
            if load.waterfall:
                page = replace(page, sections=[*page.sections, *_explained(kind, load.url, **more)])
            write_html(load.html, page)
        if stopped := next((one.stopped for _, one in summaries if one.stopped), ""):
            typer.echo(f"bench: the run ended early: {stopped}", err=True)
            raise typer.Exit(130 if stopped == "interrupted" else 1)
