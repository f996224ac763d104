"""`trimodal bench overload`: its options, read and checked. See trimodal.bench.scenarios.overload."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from trimodal.cli.bench.options import REPORT, REQUESTS, SERVER
from trimodal.cli.common import check_writable, one_sentence

if TYPE_CHECKING:
    from trimodal.bench.scenarios.overload import OverloadScenario


def overload(
    load: list[float] = typer.Option(
        [0.5, 1, 2, 5, 10], min=0.01, max=1000, help="Offered, times the measured capacity; repeatable."
    ),
    seconds: float = typer.Option(60.0, min=1, max=3600, help="For each load on each side."),
    capacity: float = typer.Option(0.0, min=0, max=1e6, help="Requests a second; 0: measured first."),
    patience: float = typer.Option(30.0, min=1, max=600, help="Seconds until a client gives up."),
    most_open: int = typer.Option(8192, min=1, max=100_000, help="Requests that may be open together."),
    seed: int = typer.Option(1, min=0, help="Of arrivals and prompts."),
    mix: str = typer.Option(
        "premium=10,standard=60,batch=30", help="Weights of the tiers.", rich_help_panel=REQUESTS
    ),
    tiers: Path | None = typer.Option(
        None, help="TOML file of tiers; its bounds are what is judged.", rich_help_panel=REQUESTS
    ),
    prompts: Path | None = typer.Option(
        None, help="Ask the lines of this file, not random words.", rich_help_panel=REQUESTS
    ),
    prompt_tokens: int = typer.Option(
        64, min=8, max=100_000, help="Median of random prompts.", rich_help_panel=REQUESTS
    ),
    answer_tokens: int = typer.Option(
        24, min=1, max=1000, help="Mean of the fake engine's answers.", rich_help_panel=REQUESTS
    ),
    max_tokens: int = typer.Option(96, min=1, help="max_tokens of every request.", rich_help_panel=REQUESTS),
    scheduler: list[str] = typer.Option(
        ["deadline", "fifo"], help="Sides: deadline, fifo; repeatable.", rich_help_panel=SERVER
    ),
    set_: list[str] = typer.Option(
        [], "--set", help="parameter=value of llm's config; repeatable.", rich_help_panel=SERVER
    ),
    plot: Path | None = typer.Option(
        None, help="Draw goodput over load into this PNG (extra: bench).", rich_help_panel=REPORT
    ),
    json: Path | None = typer.Option(None, help="All figures.", rich_help_panel=REPORT),
) -> None:
    """Goodput under open-loop load beyond capacity: by deadlines against first in, first out.

    Typical: trimodal bench overload --load 1 --load 5 --seconds 30 --json overload.json
    """
    from trimodal.bench.scenarios.overload import SCHEDULERS, TIERS, OverloadScenario
    from trimodal.server.overlay import parse_changes

    for name in scheduler:
        if name not in SCHEDULERS:
            raise typer.BadParameter(f"--scheduler {name}: known are {', '.join(SCHEDULERS)}")
    for name, path in (("--plot", plot), ("--json", json)):
        if path:
            check_writable(name, path)
    if plot and plot.suffix != ".png":
        raise typer.BadParameter(f"--plot {plot}: a name that ends with .png is needed")
    with one_sentence("bench"):
        changes = parse_changes(f"llm.{text}" for text in set_).get("llm", {})
    scenario = OverloadScenario(
        loads=tuple(sorted(set(load))),
        seconds=seconds,
        schedulers=tuple(dict.fromkeys(scheduler)),
        mix=_weights(mix),
        tiers=tiers or TIERS,
        capacity=capacity,
        prompts=prompts,
        prompt_tokens=prompt_tokens,
        answer_tokens=answer_tokens,
        max_tokens=max_tokens,
        patience=patience,
        most_open=most_open,
        seed=seed,
        changes=changes,
    )
    _run(scenario, plot, json)


def _run(scenario: OverloadScenario, plot: Path | None, json: Path | None) -> None:
    from rich.console import Console

    from trimodal.bench.report.files import write_json
    from trimodal.bench.report.results import doubts
    from trimodal.bench.report.tables import error_table, goodput_table, names_of
    from trimodal.bench.scenarios.overload import draw, run_overload
    from trimodal.cli.bench.run import end, run_until_interrupt
    from trimodal.report.console import print_table
    from trimodal.report.plots import check_plots

    console = Console(highlight=False)
    with one_sentence("bench"):
        if plot:
            check_plots("--plot")
        found = run_until_interrupt(console, lambda stop, tell: run_overload(scenario, stop, tell))
        for title, results in (("By tier", found.tiers), ("All tiers", found.levels)):
            print_table(goodput_table(title, results), console)
        if failed := error_table(found.levels):
            print_table(failed, console)
        rates = ", ".join(f"{name} {rate:.2f}" for name, rate in found.measured.items())
        capacity = f"capacity {found.capacity:.2f} requests/s; closed loop: {rates}"
        for sentence in [capacity, *found.statements, *doubts(found.levels)]:
            console.print(sentence, markup=False)
        if plot:
            draw(found, plot)
        if json:
            judged = [(one, one.summary) for one in (*found.levels, *found.tiers) if one.summary]
            cases = [{**names_of(one), **summary.plain()} for one, summary in judged]
            known = {"requests_per_s": found.capacity, "closed_loop": found.measured}
            write_json(json, {"capacity": known, "cases": cases, "statements": found.statements})
        end(next((run.stopped for one in found.levels for run in one.runs if run.stopped), ""))


def _weights(text: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = (piece.strip() for piece in part.partition("="))
        with suppress(ValueError):
            weights[name] = float(weight)
        if not (name and 0 < weights.get(name, 0.0) < float("inf")):
            raise typer.BadParameter(f"--mix {part}: tier=weight is needed, with a weight above 0")
    return weights
