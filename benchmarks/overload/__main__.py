"""Reads the options of `python -m benchmarks.overload`, and runs it.

python -m benchmarks.overload --load 1 --load 5 --seconds 30 --json overload.json
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

import typer

from benchmarks.overload.measure import TIERS, OverloadScenario, run_overload
from trimodal.bench.load.slo import NO_SLO
from trimodal.cli.bench.options import REPORT, SERVER, run_load
from trimodal.cli.common import check_writable, one_sentence
from trimodal.server.overlay import parse_changes


def overload(
    load: list[float] = typer.Option(
        [0.5, 1, 2, 5, 10], min=0.01, max=1000, help="Offered, times the measured capacity; repeatable."
    ),
    seconds: float = typer.Option(60.0, min=1, max=3600, help="For each load on each side."),
    capacity: float = typer.Option(0.0, min=0, max=1e6, help="Requests a second; 0: measured first."),
    mix: str = typer.Option("premium=10,standard=60,batch=30", help="Weights of the tiers."),
    tiers: Path | None = typer.Option(None, help="TOML file of tiers; its bounds are what is judged."),
    set_: list[str] = typer.Option(
        [], "--set", help="parameter=value of llm's config; repeatable.", rich_help_panel=SERVER
    ),
    json: Path | None = typer.Option(None, help="All figures.", rich_help_panel=REPORT),
) -> None:
    """Goodput under open-loop load beyond capacity: by deadlines against first in, first out."""
    if json:
        check_writable("--json", json)
    with one_sentence("bench"):
        changes = parse_changes(f"llm.{text}" for text in set_).get("llm", {})
    loads = tuple(sorted(set(load)))
    scenario = OverloadScenario(loads, seconds, _weights(mix), tiers or TIERS, capacity, changes)
    run_load(partial(run_overload, scenario), NO_SLO, json)


def _weights(text: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = (piece.strip() for piece in part.partition("="))
        with suppress(ValueError):
            weights[name] = float(weight)
        if not (name and 0 < weights.get(name, 0.0) < float("inf")):
            raise typer.BadParameter(f"--mix {part}: tier=weight is needed, with a weight above 0")
    return weights


app = typer.Typer(add_completion=False)
app.command()(overload)

if __name__ == "__main__":
    app()
