"""`trimodal tune`: searches the knobs of a model on a live server, and writes them when told to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimodal.cli.common import check_writable, is_given, one_sentence, with_settings
from trimodal.cli.serve import RepositorySettings

if TYPE_CHECKING:
    from rich.console import Console

    from trimodal.tune.knobs import Knob, Pipeline
    from trimodal.tune.search import Trial
    from trimodal.tune.session import Tuned, TuneSettings

_goal, _search, _load, _result = (
    partial(typer.Option, rich_help_panel=panel) for panel in ("Goal", "Search", "Load", "Result")
)


@dataclass(frozen=True)
class TuneCommand(RepositorySettings):
    """The options of `trimodal tune`."""

    slo: Annotated[str, _goal(help="Bounds, as 'p99_ms<=50' or 'p99_ttft_ms<=500,p99_itl_ms<=60'.")] = ""
    maximize: Annotated[
        str | None,
        _goal(
            help="throughput (default), goodput, requests_per_s, tokens_per_s, rtfx, or streams: the most "
            "at once that keep the SLO."
        ),
    ] = None
    minimize: Annotated[str | None, _goal(help="A statistic: p99_ms, p95_ttft_ms, mean_itl_ms.")] = None
    mix: Annotated[
        list[str] | None,
        _goal(
            metavar="MODEL@RATE:SLO",
            help="Models tuned together for the highest load that keeps all; repeatable: "
            "'llm@2:p95_ttft_ms<=500'.",
        ),
    ] = None
    knob: Annotated[
        list[str] | None,
        _search(metavar="[MODEL.]KNOB=A,B,C", help="Values of a knob to search; repeatable."),
    ] = None
    only: Annotated[bool, _search("--only", help="Search the knobs of --knob and no others.")] = False
    list_knobs: Annotated[
        bool, _search("--list-knobs", help="Print what would be searched; measure nothing.")
    ] = False
    trials: Annotated[int, _search(min=1, max=10_000, help="Settings that are measured; 1: as it is.")] = 24
    minutes: Annotated[float, _search(min=0.1, max=10_000, help="For all, the final included.")] = 15.0
    rounds: Annotated[int, _search(min=1, max=20, help="Measurements of a setting, at most.")] = 2
    final_rounds: Annotated[
        int, _search(min=0, max=50, help="Of the best and the start, in turn; 0: no final.")
    ] = 5
    seconds: Annotated[float, _search(min=0.2, max=600, help="One measurement.")] = 3.0
    seed: Annotated[int, _search(min=0, help="Of the search.")] = 0
    concurrency: Annotated[int, _load(min=1, max=4096, help="Clients in a closed loop.")] = 8
    rate: Annotated[float, _load(min=0, max=10_000, help="Requests a second of an open loop, instead.")] = 0.0
    batch: Annotated[int, _load(min=1, max=1024, help="Images, texts or rows in a request.")] = 1
    prompt_tokens: Annotated[str, _load(help="llm: 64, uniform:32-256, lognormal:400,0.6.")] = "64"
    max_tokens: Annotated[str, _load(help="llm: length of answers, in the same forms.")] = "32"
    pace: Annotated[float, _load(min=0, max=64, help="speech: 1 as spoken, 0 as fast as it goes.")] = 1.0
    json: Annotated[Path | None, _result(help="File for all figures.")] = None
    write: Annotated[bool, _result("--write", help="Write what was found into the config files.")] = False

    def settings(self, model: str | None) -> TuneSettings:
        """What is searched, how and with which load. Raises: SettingsError."""
        from trimodal.bench.load.slo import parse_slo
        from trimodal.errors import SettingsError
        from trimodal.tune.mix import parse_mix
        from trimodal.tune.objective import LOAD, STREAMS, parse_objective
        from trimodal.tune.search import Budget
        from trimodal.tune.session import TuneSettings
        from trimodal.tune.workload import Workload

        bounds, mix = parse_slo(self.slo), parse_mix(self.mix or ())
        if bool(model) == bool(mix):
            raise SettingsError("name one model, or several by --mix MODEL@RATE:SLO")
        alone = {"slo": self.slo, "maximize": self.maximize, "minimize": self.minimize, "rate": self.rate}
        if mix and (given := next((name for name, value in alone.items() if value), "")):
            raise SettingsError(f"--{given} is of one model; a part of --mix has its own: MODEL@RATE:SLO")
        objective = LOAD if mix else parse_objective(self.maximize, self.minimize, bounds)
        if objective == STREAMS and self.rate:
            raise SettingsError("--rate is of an open loop: leave it or --maximize streams out")
        models = tuple(part.model for part in mix) or (model or "",)
        return TuneSettings(
            model=" + ".join(models),
            objective=objective,
            options=self.options(models=models),
            slo=bounds,
            mix=mix,
            workload=Workload(**{name: getattr(self, name) for name in Workload.__dataclass_fields__}),
            budget=Budget(
                self.trials, 60 * self.minutes, self.rounds, self.final_rounds, self.seed, descend=bool(mix)
            ),
            knobs=tuple(self.knob or ()),
            only=self.only,
            seconds=self.seconds,
        )


@with_settings(TuneCommand)
def tune(
    context: typer.Context,
    settings: TuneCommand,
    model: str | None = typer.Argument(None, help="Model or pipeline: vision, llm, speech, embedding, …"),
) -> None:
    """Search the knobs of a model, or of several, on a live server: the best objective that keeps the SLO.

    Each setting gets a server of its own; no file is touched without --write. Exit code 0: done, with or
    without a better setting.
    """
    from rich.console import Console

    if settings.json:
        check_writable("--json", settings.json)
    if is_given(context, "concurrency"):
        streams = "--maximize streams" if settings.maximize == "streams" else ""
        if other := streams or (settings.mix and "--mix") or (settings.rate and "--rate"):
            raise typer.BadParameter(f"--concurrency is of a closed loop: leave it or {other} out")
    with one_sentence("trimodal tune"):
        from trimodal.tune.session import tune

        chosen = settings.settings(model)
        if settings.list_knobs:
            _list(chosen)
            return
        progress = _Progress(chosen, Console(stderr=True, highlight=False, markup=False))
        tuned = tune(chosen, tell=progress.trial, began=progress.began)
        assert progress.pipeline
        _finish(chosen, tuned, progress.pipeline, settings)
    if tuned.result is None:
        raise typer.Exit(130)


class _Progress:
    """Prints a line for each trial, and keeps the pipeline for the end."""

    def __init__(self, settings: TuneSettings, console: Console) -> None:
        self._settings, self._console = settings, console
        self.pipeline: Pipeline | None = None

    def began(self, pipeline: Pipeline, knobs: Sequence[Knob]) -> None:
        self.pipeline = pipeline
        self._console.print(f"searching {len(knobs)} knobs:")
        for knob in knobs:
            self._console.print(f"  {knob}  (now {pipeline.present(knob.model, knob.name)})", soft_wrap=True)

    def trial(self, trial: Trial, best: Trial) -> None:
        from trimodal.tune.report import progress

        if trial.number == 0:
            self._start = trial.setting
        of = self._settings.budget.trials
        self._console.print(progress(trial, best, self._start, self._settings.objective, of), soft_wrap=True)


def _finish(settings: TuneSettings, tuned: Tuned, pipeline: Pipeline, command: TuneCommand) -> None:
    from rich.console import Console

    from trimodal.bench.report import write_json
    from trimodal.errors import SettingsError
    from trimodal.report.console import print_table
    from trimodal.tune import report
    from trimodal.tune.session import new_texts, write_texts

    console = Console(highlight=False, markup=False)
    for table in reversed(report.tables(settings, tuned)):
        print_table(table, console)
    console.print(report.verdict(settings, tuned), soft_wrap=True)
    result = tuned.result
    texts, why = {}, ""
    if result and result.improved:
        try:
            texts = new_texts(pipeline, result.start.setting, result.chosen.setting)
        except SettingsError as error:
            why = str(error)
    difference = report.diff(texts, settings.options.repository)
    if difference:
        console.print(difference, soft_wrap=True)
    if command.json:
        write_json(command.json, report.data(settings, tuned, difference))
    why = report.refusal(settings, tuned) or why
    if why:
        raise SettingsError(why)
    if texts and command.write:
        write_texts(texts)
        console.print(f"Written: {', '.join(map(str, texts))}", soft_wrap=True)
    elif texts:
        console.print("No file was changed; --write changes them.")


def _list(settings: TuneSettings) -> None:
    """Prints the knobs of the repository's files."""
    from tempfile import TemporaryDirectory

    from trimodal.server.overlay import ServedRepository
    from trimodal.tune.session import chosen_knobs, read_pipeline

    with TemporaryDirectory(prefix="trimodal-tune-") as folder:
        repository = ServedRepository(settings.options, Path(folder)).path
        pipeline = read_pipeline(settings.models, settings.options, repository)
        for knob in chosen_knobs(pipeline, settings.knobs, only=settings.only):
            typer.echo(f"{knob}  (now {pipeline.present(knob.model, knob.name)})")
