"""Defines the options that all load tests share, and reads them and those that several have."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from trimodal.cli.common import check_writable, one_sentence

if TYPE_CHECKING:
    from trimodal.bench.load.lengths import Lengths
    from trimodal.bench.load.plan import LoadPlan
    from trimodal.bench.load.traces import Traced
    from trimodal.bench.targets.questions import Mix
    from trimodal.server.options import Profile

REQUESTS, SIDES, LOAD, SERVER, REPORT = "Requests", "Side by side", "Load", "Server", "Report"
WARM_UP_S = 2.0


def _option(*names: str, panel: str, help: str, **more: Any) -> Any:
    """An option of one panel of the help."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


@dataclass
class LoadOptions:
    """What every load test is told on the command line; `with_load` adds it to a command."""

    load: Annotated[str, _option(panel=LOAD, help="closed, constant, poisson, gamma or trace.")] = ""
    rate: Annotated[
        list[float], _option(panel=LOAD, help="Requests a second of an open loop; repeatable.")
    ] = ()  # type: ignore[assignment]
    burstiness: Annotated[
        float, _option(panel=LOAD, help="Of gamma arrivals: 1 is Poisson, less comes in bursts.")
    ] = 1.0
    trace: Annotated[
        Path | None, _option(panel=LOAD, help="Azure LLM inference CSV or Mooncake JSON lines.")
    ] = None
    trace_speed: Annotated[float, _option(panel=LOAD, min=0.001, help="2: in half the time.")] = 1.0
    trace_scale: Annotated[float, _option(panel=LOAD, min=0.001, help="Of the trace's lengths.")] = 1.0
    seconds: Annotated[
        float,
        _option(panel=LOAD, min=0, max=86_400, help="Of each case; 0: 30, side by side 10, a trace's own."),
    ] = 0.0
    requests: Annotated[
        int, _option(panel=LOAD, min=0, max=1_000_000, help="Instead of seconds: of each case.")
    ] = 0
    warmup: Annotated[
        float | None,
        _option(panel=LOAD, min=0, help="Not counted: seconds (2), with --requests a number of them (0)."),
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
    server_metrics: Annotated[
        str, _option(panel=SERVER, help="host:port of its metrics page, with --url: caches, speculation.")
    ] = ""
    profile: Annotated[str, _option(panel=SERVER, help="Of a started server: cpu, cuda, tensorrt.")] = "cpu"
    set_: Annotated[
        list[str], _option("--set", panel=SERVER, help="model.parameter=value of its config; repeatable.")
    ] = ()  # type: ignore[assignment]
    slo: Annotated[str, _option(panel=REPORT, help="As ttft_ms<=500,p99_ms<=2000,error_rate<=0.01.")] = ""
    cost_per_hour: Annotated[
        float, _option(panel=REPORT, min=0, help="Of the machine, for the cost of requests and tokens.")
    ] = 0.0
    html: Annotated[Path | None, _option(panel=REPORT, help="Report with plots, in one file.")] = None
    waterfall: Annotated[
        bool,
        _option(panel=REPORT, help="With --html: where one more request's time goes (trimodal explain)."),
    ] = False
    json: Annotated[Path | None, _option(panel=REPORT, help="All figures.")] = None
    csv: Annotated[Path | None, _option(panel=REPORT, help="A line for each case and side.")] = None
    jsonl: Annotated[Path | None, _option(panel=REPORT, help="A line for each request.")] = None

    def check(self) -> None:
        """Raises: typer.BadParameter now, not after an hour: a file cannot be written."""
        for name in ("html", "json", "csv", "jsonl"):
            if path := getattr(self, name):
                check_writable(f"--{name}", path)
        if self.waterfall and (not self.html or self.url.startswith("http")):
            raise typer.BadParameter("--waterfall is a part of --html's report, of a server asked over gRPC")

    def plan(self, clients: list[int], *, sides: bool = False, warm_up: float = WARM_UP_S) -> LoadPlan:
        """What is sent: so many clients where the load is closed loops. Ends the command where it is wrong.

        Args:
            sides: several are measured, in turns.
            warm_up: seconds, where the user says nothing else.
        """
        from trimodal.bench.load.plan import LoadPlan
        from trimodal.bench.load.slo import parse_slo

        load: Any = self.load or ("trace" if self.trace else "poisson" if self.rate else "closed")
        timed = not self.requests and load != "trace"
        seconds = self.seconds or (10.0 if sides and timed else 0.0)
        with one_sentence("bench"):
            return LoadPlan(
                load=load,
                sizes=tuple(clients) if load == "closed" else tuple(self.rate),
                burstiness=self.burstiness,
                trace=self.traced,
                seconds=seconds,
                requests=self.requests,
                warmup=(warm_up if timed else 0.0) if self.warmup is None else self.warmup,
                max_in_flight=self.max_in_flight,
                rounds=self.rounds or (3 if sides else 1),
                timeout=self.timeout,
                slo=parse_slo(self.slo),
                cost_per_hour=self.cost_per_hour,
                seed=self.seed,
            )

    def started(
        self, model: str = "", artefact: Path | None = None
    ) -> tuple[Profile, dict[str, dict[str, str]]]:
        """Profile and changed parameters of a server that is started. Ends the command where one is wrong.

        Args:
            model: whose parameters need no name in front.
            artefact: another built engine for it.
        """
        from trimodal.server.options import parse_profile
        from trimodal.server.overlay import parse_changes

        named = (
            text if "." in text.partition("=")[0] or not model else f"{model}.{text}" for text in self.set_
        )
        with one_sentence("bench"):
            changes = parse_changes(named)
            if artefact:
                changes.setdefault(model, {})["artefact"] = str(artefact.resolve())
            return parse_profile(self.profile), changes

    def mix(self, prompt: Lengths, answer: Lengths, prompts: Path | None = None, **more: Any) -> Mix:
        """What is asked; `more` as `Mix` has it. Ends the command where a file cannot be read."""
        from trimodal.bench.targets.questions import Mix, read_lines

        with one_sentence("bench"):
            lines = read_lines(prompts) if prompts else ()
            return Mix(prompt, answer, lines=lines, trace=self.traced, scale=self.trace_scale, **more)

    @cached_property
    def traced(self) -> Sequence[Traced]:
        """The trace's requests. Raises: SettingsError."""
        from trimodal.bench.load.traces import read_trace

        return read_trace(self.trace, self.trace_speed, self.trace_scale) if self.trace else ()


def with_load(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of `LoadOptions` beside its own; it gets them as `load`."""
    own = inspect.signature(command, eval_str=True)
    hints = get_type_hints(LoadOptions, include_extras=True)
    shared: Mapping[str, inspect.Parameter] = inspect.signature(LoadOptions).parameters
    added = [
        parameter.replace(
            kind=inspect.Parameter.KEYWORD_ONLY,
            annotation=hints[name],
            default=[] if parameter.default == () else parameter.default,
        )
        for name, parameter in shared.items()
    ]
    kept = [one for name, one in own.parameters.items() if name != "load"]

    @wraps(command)
    def called(**given: Any) -> None:
        load = LoadOptions(**{name: given.pop(name) for name in shared})
        load.check()
        command(**given, load=load)

    called.__signature__ = own.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
    # typer reads these too, and `wraps` copied the command's own.
    called.__annotations__ = {one.name: one.annotation for one in (*kept, *added)}
    return called


def lengths(text: str, option: str, least: int = 1) -> Lengths:
    """A distribution of lengths. Raises: typer.BadParameter."""
    from trimodal.bench.load.lengths import parse_lengths
    from trimodal.errors import SettingsError

    try:
        return parse_lengths(text, option, least)
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from None


def shared_prefix(text: str) -> dict[str, float]:
    """`SHARE:TOKENS` as fields of a `Mix`. Raises: typer.BadParameter."""
    if not text:
        return {}
    share, _, tokens = text.partition(":")
    try:
        found = float(share), int(tokens)
    except ValueError:
        found = -1.0, 0
    if not (0 <= found[0] <= 1 and 1 <= found[1] <= 1_000_000):
        raise typer.BadParameter(f"--shared-prefix {text}: SHARE:TOKENS is needed, as 0.5:400")
    return {"shared_share": found[0], "shared_tokens": found[1]}


def size(text: str) -> tuple[int, int]:
    """Width and height of a picture. Raises: typer.BadParameter."""
    width, _, height = text.partition("x")
    if not (width.isdigit() and (height or width).isdigit()):
        raise typer.BadParameter(f"--image-size {text}: 224 or 640x480 is needed")
    found = int(width), int(height or width)
    if not 16 <= min(found) <= max(found) <= 4096:
        raise typer.BadParameter(f"--image-size {text}: 16 to 4096 pixels a side")
    return found
