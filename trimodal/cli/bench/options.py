"""Defines the options that all load tests share, runs one of these tests, and shows what came of it."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimodal.cli.common import check_writable, is_given, on_interrupt, one_sentence

if TYPE_CHECKING:
    import asyncio

    from trimodal.bench.load.plan import LoadPlan
    from trimodal.bench.load.rounds import Result
    from trimodal.bench.load.slo import Slo
    from trimodal.bench.scenarios.server import LoadTest, Measurement
    from trimodal.bench.targets.questions import Mix

SIDES, LOAD, SERVER, REPORT = "Side by side", "Load", "Server", "Report"
WARM_UP_S = 2.0
# Measures until the event is set; takes what is told of the progress, too.
Measure = Callable[["asyncio.Event", Callable[[str], object]], Awaitable["Measurement"]]


def _option(*names: str, panel: str, help: str, **more: Any) -> Any:
    """An option of one panel of the help."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


@dataclass
class LoadOptions:
    """What every load test is told on the command line."""

    rate: Annotated[
        list[float], _option(panel=LOAD, help="Requests a second of an open loop, at random; repeatable.")
    ] = ()  # type: ignore[assignment]
    seconds: Annotated[
        float,
        _option(panel=LOAD, min=0, max=86_400, help="Of each case; 0: 30, side by side 10."),
    ] = 0.0
    requests: Annotated[
        int, _option(panel=LOAD, min=0, max=1_000_000, help="Instead of seconds: of each case.")
    ] = 0
    warmup: Annotated[
        float | None,
        _option(
            panel=LOAD,
            min=0,
            max=1_000_000,
            help="Not counted: seconds (2), with --requests a number of them (0).",
        ),
    ] = None
    max_in_flight: Annotated[
        int, _option(panel=LOAD, min=1, max=100_000, help="Of an open loop; more are not sent, and counted.")
    ] = 4096
    timeout: Annotated[float, _option(panel=LOAD, min=0.1, max=3600, help="Of a request, seconds.")] = 60.0
    seed: Annotated[int, _option(panel=LOAD, min=0, help="Of arrivals, prompts and shares.")] = 0
    rounds: Annotated[
        int, _option(panel=LOAD, min=0, max=50, help="Of each case; sides take turns in each. 0: 1, or 3.")
    ] = 0
    url: Annotated[
        str, _option(panel=SERVER, help="host:port of gRPC of a running server; else one is started.")
    ] = ""
    model: Annotated[str, _option(panel=SERVER, help="Its name on the server.")] = ""
    profile: Annotated[str, _option(panel=SERVER, help="Of a started server: cpu, cuda, tensorrt.")] = "cpu"
    set_: Annotated[
        list[str], _option("--set", panel=SERVER, help="model.parameter=value of its config; repeatable.")
    ] = ()  # type: ignore[assignment]
    slo: Annotated[str, _option(panel=REPORT, help="As ttft_ms<=500,p99_ms<=2000,error_rate<=0.01.")] = ""
    strict: Annotated[
        bool,
        _option("--strict", panel=REPORT, help="Exit code 1 where the server misses an objective of --slo."),
    ] = False
    json: Annotated[Path | None, _option(panel=REPORT, help="All figures.")] = None

    def __post_init__(self) -> None:
        if self.json:
            check_writable("--json", self.json)  # now, not after an hour

    def mix(self, prompt_tokens: str, max_tokens: str, prompts: Path | None = None) -> Mix:
        """What is asked. Ends the command where it is wrong."""
        from trimodal.bench.load.lengths import parse_lengths
        from trimodal.bench.targets.questions import Mix, read_lines

        with one_sentence("bench"):
            prompt = parse_lengths(prompt_tokens, "--prompt-tokens", 8)
            answer = parse_lengths(max_tokens, "--max-tokens", 2)
            lines = read_lines(prompts) if prompts else ()
            return Mix(prompt, answer, lines=lines)

    def run(
        self,
        context: typer.Context,
        clients: list[int],
        measure: Callable[[LoadTest], Awaitable[Measurement]],
        model: str = "",
        *,
        sides: bool = False,
        warm_up: float = WARM_UP_S,
        key: str = "",
    ) -> None:
        """Runs the load test and shows it. Ends the command where an option is wrong.

        Args:
            context: of the command, whose --streams or --concurrency are the clients.
            clients: cases where the load is closed loops.
            model: whose parameters need no name in front.
            sides: several are measured, in turns.
            warm_up: seconds, where the user says nothing else.
        """
        from trimodal.bench.scenarios.server import LoadTest
        from trimodal.server.options import parse_profile
        from trimodal.server.overlay import parse_changes

        closed = next((name for name in ("streams", "concurrency") if is_given(context, name)), "")
        if self.rate and closed:
            raise typer.BadParameter(f"--rate is of an open loop, --{closed} of closed ones: leave one out")
        if is_given(context, "max_in_flight") and not self.rate:
            raise typer.BadParameter("--max-in-flight is of an open loop: it goes with --rate")
        if self.url and is_given(context, "profile"):
            raise typer.BadParameter("--profile is of a server that is started: leave it or --url out")
        if self.strict and not self.slo:
            raise typer.BadParameter("--strict is of objectives: it goes with --slo")
        changes = (
            text if "." in text.partition("=")[0] or not model else f"{model}.{text}" for text in self.set_
        )
        with one_sentence("bench"):
            test = LoadTest(
                self._plan(clients, warm_up, sides=sides),
                url=self.url,
                model=self.model,
                key=key,
                profile=parse_profile(self.profile),
                changes=parse_changes(changes),
            )
        run_load(
            lambda stop, tell: measure(replace(test, stop=stop, tell=tell)),
            test.plan.slo,
            self.json,
            strict=self.strict,
        )

    def _plan(self, clients: list[int], warm_up: float, *, sides: bool) -> LoadPlan:
        from trimodal.bench.load.plan import LoadPlan
        from trimodal.bench.load.slo import parse_slo

        timed = not self.requests
        return LoadPlan(
            load="poisson" if self.rate else "closed",
            sizes=tuple(self.rate or clients),
            seconds=self.seconds or (10.0 if sides and timed else 0.0),
            requests=self.requests,
            warmup=(warm_up if timed else 0.0) if self.warmup is None else self.warmup,
            max_in_flight=self.max_in_flight,
            rounds=self.rounds or (3 if sides else 1),
            timeout=self.timeout,
            slo=parse_slo(self.slo),
            seed=self.seed,
        )


def size(text: str) -> tuple[int, int]:
    """Width and height of a picture. Raises: typer.BadParameter."""
    width, _, height = text.partition("x")
    if not (width.isdigit() and (height or width).isdigit()):
        raise typer.BadParameter(f"--image-size {text}: 224 or 640x480 is needed")
    found = int(width), int(height or width)
    if not 16 <= min(found) <= max(found) <= 4096:
        raise typer.BadParameter(f"--image-size {text}: 16 to 4096 pixels a side")
    return found


def run_load(measure: Measure, slo: Slo, json: Path | None, *, strict: bool = False) -> None:
    """Runs a load test and shows it. A run that ended early, or was not answered, is exit code 1.

    Ctrl-C ends it with what was measured; a second one ends the command at once.

    Args:
        strict: an objective that the first side misses is exit code 1, too.
    """
    import asyncio

    from rich.console import Console

    from trimodal.bench.report import names_of, print_tables, write_json
    from trimodal.client.errors import Timeout
    from trimodal.errors import ServerError

    console, progress = Console(highlight=False), Console(stderr=True, highlight=False)

    async def main() -> Measurement | None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        begun = asyncio.Event()

        def tell(text: str) -> None:
            begun.set()
            progress.print(text, style="dim")

        def interrupted() -> None:
            loop.remove_signal_handler(signal.SIGINT)
            stop.set()
            if begun.is_set():
                console.print("interrupted: what was measured so far is shown", style="dim")
            else:  # a server starts, or the first request waits for its answer
                measuring.cancel()

        measuring = asyncio.ensure_future(measure(stop, tell))
        with on_interrupt(loop, interrupted):
            await asyncio.wait([measuring])
        return None if measuring.cancelled() else measuring.result()

    with one_sentence("bench"):
        try:
            found = asyncio.run(main())
        except Timeout as error:  # of what is asked before the load
            raise ServerError(f"{error}: --timeout sets how long a request may take") from None
        if found is None:
            typer.echo("bench: interrupted before anything was measured", err=True)
            raise typer.Exit(130)
        print_tables(found.title, found.unit, found.results, slo, console)
        if json:
            cases = [{**names_of(one), **asdict(one.summary)} for one in found.results]
            write_json(json, {"facts": dict(found.facts), "slo": slo.text, "cases": cases})
    why, code = _failure(found.results, strict=strict)
    if code:
        typer.echo(f"bench: {why}", err=True)
        raise typer.Exit(code)


def _failure(results: Sequence[Result], *, strict: bool) -> tuple[str, int]:
    """Why a load test failed, and the exit code; "" and 0: it did not."""
    whole = [one for one in results if not one.part]
    if stopped := next((one.summary.stopped for one in whole if one.summary.stopped), ""):
        return f"the run ended early: {stopped}", 130 if stopped == "interrupted" else 1
    if silent := next((one for one in whole if not one.summary.ok), None):
        return f"{silent.case.name}, {silent.side}: no request was answered", 1
    missed = [
        f"{one.case.name}: {verdict.text}"
        for one in whole
        for verdict in one.summary.verdicts
        if strict and one.side == whole[0].side and not verdict.met
    ]
    return (f"--slo was missed: {'; '.join(missed)}", 1) if missed else ("", 0)
