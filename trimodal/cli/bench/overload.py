"""`trimodal bench overload`: its options, read and checked. See trimodal.bench.overload.bench."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import typer


def overload(
    load: list[float] = typer.Option(
        [0.5, 1, 2, 5, 10], min=0.01, max=1000, help="Offered, times the measured capacity; repeatable."
    ),
    seconds: float = typer.Option(60.0, min=1, max=3600, help="For each load on each side."),
    scheduler: list[str] = typer.Option(["deadline", "fifo"], help="Sides: deadline, fifo; repeatable."),
    mix: str = typer.Option("premium=10,standard=60,batch=30", help="Weights of the tiers."),
    tiers: Path | None = typer.Option(None, help="TOML file of tiers; its bounds are what is judged."),
    capacity: float = typer.Option(0.0, min=0, max=1e6, help="Requests a second; 0: measured first."),
    prompts: Path | None = typer.Option(None, help="Ask the lines of this file, not random words."),
    prompt_tokens: int = typer.Option(64, min=8, max=100_000, help="Median of random prompts."),
    answer_tokens: int = typer.Option(24, min=1, max=1000, help="Mean of the fake engine's answers."),
    max_tokens: int = typer.Option(96, min=1, help="max_tokens of every request."),
    patience: float = typer.Option(30.0, min=1, max=600, help="Seconds until a client gives up."),
    most_open: int = typer.Option(8192, min=1, max=100_000, help="Requests that may be open together."),
    seed: int = typer.Option(1, min=0, help="Of arrivals and prompts."),
    set_: list[str] = typer.Option([], "--set", help="parameter=value of llm's config; repeatable."),
    plot: Path | None = typer.Option(None, help="Also draw goodput over load into this PNG (extra: bench)."),
    json_: Path | None = typer.Option(None, "--json", help="Also write the figures to this file."),
) -> None:
    """Goodput under open-loop load beyond capacity: by deadlines against first in, first out.

    Typical: trimodal bench overload --load 1 --load 5 --seconds 30 --json overload.json
    """
    from trimodal.bench.overload.bench import SCHEDULERS, TIERS, Plan, measure
    from trimodal.cli.bench.common import pair, run

    for name in scheduler:
        if name not in SCHEDULERS:
            raise typer.BadParameter(f"--scheduler {name}: known are {', '.join(SCHEDULERS)}")
    if plot:
        _check_plot(plot)
    plan = Plan(
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
        changes=dict(pair(text) for text in set_),
    )
    run(lambda console: measure(plan, console, plot), json_)


def _check_plot(path: Path) -> None:
    from trimodal.cli.bench.common import check_writable

    check_writable("--plot", path)
    if path.suffix != ".png":
        raise typer.BadParameter(f"--plot {path}: a name that ends with .png is needed")
    if find_spec("matplotlib") is None:
        raise typer.BadParameter("--plot needs matplotlib: pip install 'trimodal[bench]'")


def _weights(text: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = (piece.strip() for piece in part.partition("="))
        try:
            weights[name] = float(weight)
        except ValueError:
            weights[name] = 0.0
        if not (name and 0 < weights[name] < float("inf")):
            raise typer.BadParameter(f"--mix {part}: tier=weight is needed, with a weight above 0")
    return weights
