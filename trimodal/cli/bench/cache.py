"""`trimodal bench cache`: its options, read and checked. See trimodal.bench.cache.bench."""

from __future__ import annotations

import os
from pathlib import Path

import typer


def cache(
    part: str = typer.Option("", help="Of the project's pairs: report, or tune (also with --calibrate)."),
    pairs: Path | None = typer.Option(None, help="JSON lines of your own pairs instead."),
    max_false_hit: float = typer.Option(0.01, min=1e-9, max=1, help="Bound that the threshold is to keep."),
    calibration: Path | None = typer.Option(None, help="Another calibration than the shipped one."),
    calibrate: Path | None = typer.Option(None, help="Calibrate on the pairs, and write it to this file."),
    artefact: Path | None = typer.Option(None, help="Another built embedding engine than the config's."),
    accuracy_only: bool = typer.Option(False, help="Without latencies: no server is started."),
    show: int = typer.Option(0, min=0, help="Print at most so many false hits and misses."),
    json_: Path | None = typer.Option(None, "--json", help="Also write the figures to this file."),
) -> None:
    """Right and wrong hits of the semantic cache on labelled pairs, and the latency of a hit.

    Typical: trimodal bench cache --pairs pairs.jsonl --show 20
    """
    from trimodal.bench.cache.bench import Plan, measure
    from trimodal.cli.bench.common import run

    if part not in ("", "report", "tune"):
        raise typer.BadParameter(f"--part {part}: known are report, tune")
    if part and pairs:
        raise typer.BadParameter("--part and --pairs: one of them")
    if calibrate and part == "report":
        raise typer.BadParameter(
            "--calibrate --part report: what is tuned on cannot be reported on; --part tune"
        )
    if calibrate and calibration:
        raise typer.BadParameter("--calibrate and --calibration: one of them")
    if calibrate and (calibrate.is_dir() or not os.access(calibrate.parent, os.W_OK)):
        raise typer.BadParameter(f"--calibrate {calibrate}: no file can be written there")
    plan = Plan(
        part="tune" if part == "tune" or (calibrate and not pairs) else "report",
        pairs=pairs,
        calibration=calibration,
        calibrate=calibrate,
        max_false_hit=max_false_hit,
        artefact=artefact,
        accuracy_only=accuracy_only,
        show=show,
    )
    run(lambda console: measure(plan, console), json_)
