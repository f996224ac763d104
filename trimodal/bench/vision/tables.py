"""Prints what the vision bench measured, and returns it as plain data."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from trimodal.bench.common.closed_loop import LoopRound, summarise_loops
from trimodal.bench.common.samples import paired_ratio
from trimodal.bench.common.triton_counters import StepTimes

if TYPE_CHECKING:
    from trimodal.bench.vision.plan import Plan


@dataclass
class Measured:
    """The rounds of everything: the same place in each list is the same round."""

    served: dict[tuple[int, int], list[LoopRound]] = field(default_factory=dict)
    pixels: dict[tuple[int, int], list[LoopRound]] = field(default_factory=dict)
    bare: dict[tuple[str, int], list[LoopRound]] = field(default_factory=dict)
    steps: dict[tuple[int, int], dict[str, StepTimes]] = field(default_factory=dict)


def report(plan: Plan, measured: Measured, title: str, console: Console) -> dict[str, Any]:
    """Prints the tables; the figures as plain data."""
    best = {kind: _best(measured.bare, kind) for kind in dict.fromkeys(kind for kind, _ in measured.bare)}
    figures: dict[str, Any] = {
        "machine": platform.processor() or platform.machine(),
        "plan": {**asdict(plan), "changes": {name: dict(values) for name, values in plan.changes.items()}},
        "best_bare_batch": {kind: size for kind, (_, size) in best.items()},
        "served": {},
        "pixels": {},
        "bare": {},
    }
    table = Table(title=f"vision: {title}", box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.show_edge = False
    for column in ("side", "img/s", "p50 ms", "p95 ms", "p99 ms", "batch", *(f"/{kind}" for kind in best)):
        table.add_column(column, justify="left" if column == "side" else "right", no_wrap=True)
    for (kind, size), rounds in measured.bare.items():
        summary = summarise_loops(rounds)
        figures["bare"][f"{kind}_{size}"] = asdict(summary)
        table.add_row(kind, f"{summary.rate:.1f}", *_ms(summary), str(size))
    for side, served in (("served", measured.served), ("pixels", measured.pixels)):
        for (clients, size), rounds in served.items():
            summary = summarise_loops(rounds)
            ratios = {
                kind: paired_ratio(rounds, measured.bare[key], lambda one: one.rate)
                for kind, key in best.items()
            }
            figures[side][f"{clients}x{size}"] = {**asdict(summary), "ratio": ratios}
            batch = ""
            if side == "served":
                steps = measured.steps[clients, size]
                figures[side][f"{clients}x{size}"]["steps"] = {
                    name: asdict(times) for name, times in steps.items()
                }
                batch = f"{steps['vision_classify'].batch:.1f}"
            shown = [f"{ratio:.3f}" for ratio in ratios.values()]
            name = f"{clients} x {size}" + (" px" if side == "pixels" else "")
            table.add_row(name, f"{summary.rate:.1f}", *_ms(summary), batch, *shown)
    console.print(table)
    console.print("n x m: served to n clients with m images a request; batch: what Triton formed of them")
    if measured.pixels:
        console.print("px: pixels sent to the classifier alone, nothing is decoded")
    if best:
        console.print(f"/{', /'.join(best)}: its images/s over those of that work without Triton, best batch")
    if "engine" in best:
        case = max(measured.served, key=lambda one: median(round.rate for round in measured.served[one]))
        name = f"{case[0]}x{case[1]}"
        figures["best"] = {"case": name, **figures["served"][name]["ratio"]}
        ratio = figures["best"]["engine"]
        console.print(f"best served case {name}: {ratio:.3f} of the bare engine at batch {best['engine'][1]}")
    if (1, 1) in measured.served:
        _lone(measured, figures, console)
    return figures


def _lone(measured: Measured, figures: dict[str, Any], console: Console) -> None:
    """What serving adds to a lone image, and where its time goes."""
    served = measured.served[1, 1]
    for kind in dict.fromkeys(kind for kind, _ in measured.bare):
        if rounds := measured.bare.get((kind, 1)):
            added = 1e3 * median(our.p50 - their.p50 for our, their in zip(served, rounds, strict=True))
            figures[f"added_ms_{kind}"] = added
            console.print(f"one client, p50: {added:+.2f} ms against the bare {kind}")
    for name, times in measured.steps[1, 1].items():
        console.print(f"  {name}: {times.queue_ms:.2f} ms queue, {times.model_ms:.2f} ms in the model")


def _best(bare: Mapping[tuple[str, int], list[LoopRound]], kind: str) -> tuple[str, int]:
    """Returns the batch at which a kind of bare work has its highest rate."""
    return max((key for key in bare if key[0] == kind), key=lambda key: median(one.rate for one in bare[key]))


def _ms(summary: Any) -> list[str]:
    return [f"{value:.1f}" for value in (summary.p50, summary.p95, summary.p99)]
