"""`trimodal tune`: searches the knobs of a model on a live server, and writes them when told to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimodal.cli.common import OPERATOR_KEY, OperatorKeyFile, one_sentence, read_key
from trimodal.cli.serve import Changes, Engines, ProfileName, Repository, server_options

if TYPE_CHECKING:
    from rich.console import Console

    from trimodal.tune.knobs import Knob, Pipeline
    from trimodal.tune.search import Trial
    from trimodal.tune.session import Tuned
    from trimodal.tune.settings import TuneSettings

_MODEL = typer.Argument(..., help="Model or pipeline: vision, llm, speech, embedding, or one of yours.")

_SAMPLES = Path("build/demo/speech/samples")


def _in(panel: str) -> Callable[..., Any]:
    return partial(typer.Option, rich_help_panel=panel)


_goal, _search, _load, _result = map(_in, ("Goal", "Search", "Load", "Result"))


def tune(
    model: str = _MODEL,
    slo: str = _goal("", help="Bounds, as 'p99_ms<=50' or 'p99_ttft_ms<=500,p99_itl_ms<=60'."),
    maximize: str | None = _goal(
        None, help="throughput (default), goodput, requests_per_s, tokens_per_s or rtfx."
    ),
    minimize: str | None = _goal(None, help="cost, or a statistic: p99_ms, p95_ttft_ms, mean_itl_ms."),
    cost_per_hour: float = _goal(0.0, min=0, help="What the machine costs, for --minimize cost."),
    knob: Annotated[
        list[str] | None,
        _search(metavar="[MODEL.]KNOB=A,B,C|LO..HI", help="Values of a knob to search; repeatable."),
    ] = None,
    only: bool = _search(False, "--only", help="Search the knobs of --knob and no others."),
    list_knobs: bool = _search(False, "--list-knobs", help="Print what would be searched; measure nothing."),
    trials: int = _search(24, min=2, max=10_000, help="Settings that are measured."),
    minutes: float = _search(15.0, min=0.1, max=10_000, help="For all, the final included."),
    rounds: int = _search(2, min=1, max=20, help="Measurements of a setting; a bad one gets fewer."),
    final_rounds: int = _search(5, min=0, max=50, help="Of the best and the start, in turn; 0: no final."),
    seconds: float = _search(3.0, min=0.2, max=600, help="One measurement."),
    seed: int = _search(0, min=0, help="Of the search."),
    concurrency: int = _load(8, min=1, max=4096, help="Clients in a closed loop."),
    rate: float = _load(0.0, min=0, help="Requests a second in an open loop (Poisson), instead."),
    batch: int = _load(1, min=1, max=1024, help="Images or rows in a request."),
    prompt_tokens: str = _load("64", help="llm: 64, uniform:32-256, lognormal:400,0.6."),
    max_tokens: str = _load("32", help="llm: length of answers, in the same forms."),
    image_size: str = _load("224x224", help="vision: pixels of the JPEGs."),
    samples: Annotated[Path, _load(help="speech: recordings, with samples.json.")] = _SAMPLES,
    pace: float = _load(1.0, min=0, max=64, help="speech: 1 as it was spoken; 0 as fast as it goes."),
    url: str = typer.Option("", help="host:port (gRPC) of a server that runs; default: one is started."),
    operator_key_file: OperatorKeyFile = None,
    profile: ProfileName = "cpu",
    model_repository: Repository = None,
    engines: Engines = None,
    set_: Changes = None,
    json: Annotated[Path | None, _result(help="File for all figures.")] = None,
    html: Annotated[Path | None, _result(help="File for a page with the Pareto front.")] = None,
    write: bool = _result(False, "--write", help="Write what was found into the config files."),
) -> None:
    """Search a model's knobs on a live server: the best objective that keeps the SLO.

    Settings are loaded through the server's repository API; no file is touched without --write, and the
    server is put back as it was, also after Ctrl-C. Exit code 0: done, with or without a better setting.
    """
    from rich.console import Console

    from trimodal.report.plots import check_plots

    with one_sentence("trimodal tune"):
        _check_libraries()
        if html:
            check_plots("--html")
        from trimodal.bench.load.slo import parse_slo
        from trimodal.tune.objective import parse_objective
        from trimodal.tune.search import Budget
        from trimodal.tune.session import tune
        from trimodal.tune.settings import TuneSettings
        from trimodal.tune.workload import Workload, parse_size

        bounds = parse_slo(slo)
        size = parse_size(image_size)
        settings = TuneSettings(
            model=model,
            objective=parse_objective(maximize, minimize, bounds, cost_per_hour),
            options=server_options(
                profile=profile,
                model_repository=model_repository,
                engines=engines,
                model=[model],
                set_=set_,
                http_port=0,
                grpc_port=0,
                metrics_port=0,
            ),
            slo=bounds,
            workload=Workload(concurrency, rate, batch, prompt_tokens, max_tokens, size, samples, pace),
            budget=Budget(trials, 60 * minutes, rounds, final_rounds, seed=seed),
            knobs=tuple(knob or ()),
            only=only,
            seconds=seconds,
            url=url,
            operator_key=read_key(operator_key_file, OPERATOR_KEY),
        )
        if list_knobs:
            _list(settings)
            return
        progress = _Progress(settings, Console(stderr=True, highlight=False, markup=False))
        tuned = tune(settings, tell=progress.trial, began=progress.began)
        assert progress.pipeline
        _finish(settings, tuned, progress.pipeline, json, html, write=write)
    if tuned.result is None:
        raise typer.Exit(130)


class _Progress:
    """Prints a line for each trial, and keeps the pipeline for the end."""

    def __init__(self, settings: TuneSettings, console: Console) -> None:
        self._settings, self._console = settings, console
        self.pipeline: Pipeline | None = None
        if not settings.url:
            console.print(f"starting a server with {settings.model}")

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


def _finish(
    settings: TuneSettings,
    tuned: Tuned,
    pipeline: Pipeline,
    json: Path | None,
    html: Path | None,
    *,
    write: bool,
) -> None:
    from rich.console import Console

    from trimodal.bench.report.files import write_json
    from trimodal.errors import SettingsError
    from trimodal.report.console import print_table
    from trimodal.report.html import write_html
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
    if json:
        write_json(json, report.data(settings, tuned, difference))
    if html:
        write_html(html, report.report(settings, tuned, difference))
    if why:
        raise SettingsError(why)
    if texts and write:
        write_texts(texts)
        console.print(f"Written: {', '.join(map(str, texts))}", soft_wrap=True)
    elif texts:
        console.print("No file was changed; --write changes them.")


def _list(settings: TuneSettings) -> None:
    """Prints the knobs of the repository's files, or of the server."""
    from trimodal.repository import select_models
    from trimodal.tune.knobs import Pipeline
    from trimodal.tune.live import LiveServer
    from trimodal.tune.session import chosen_knobs, live_pipeline

    options = settings.options
    if settings.url:
        server = LiveServer(settings.url, settings.operator_key)
        pipeline = live_pipeline(server, settings.model, options.repository, options.profile)
    else:
        pipeline = Pipeline(
            settings.model, select_models(options.repository, [settings.model], options.profile)
        )
    for knob in chosen_knobs(pipeline, settings.knobs, only=settings.only):
        typer.echo(f"{knob}  (now {pipeline.present(knob.model, knob.name)})")


def _check_libraries() -> None:
    """Raises: SettingsError: the search library is not installed."""
    from importlib.util import find_spec

    from trimodal.errors import SettingsError

    if find_spec("optuna") is None:
        raise SettingsError("it needs optuna: pip install 'trimodal[bench]'")
