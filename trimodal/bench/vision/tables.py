"""Defines the plan of a vision bench, prints what it measured, and returns it as plain data."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from trimodal.bench.common.closed_loop import (
    LoopRound,
    added_ms,
    median_rate,
    paired_ratio,
    rate_ratio,
    summarise_loops,
)
from trimodal.bench.common.serving import StepTimes
from trimodal.bench.peers.process import PeerName
from trimodal.report.console import NARROW, make_table
from trimodal.server.options import Profile

# Clients that send batches: while one batch is classified the next is decoded and a third is on its way.
BATCH_CLIENTS = 3


@dataclass(frozen=True)
class Plan:
    """What to measure. Every round takes `seconds` for each case of each side.

    `pixels`: the same cases also against the pipeline's classifier alone, without decoding. `torch`: the
    network in torch as well. `peer`: single images also against FastAPI + torch, on `peer_checkpoint`
    (None: what the artefact's manifest names). `max_batch`: served in batches of up to so many images;
    0: as configured.
    """

    concurrency: tuple[int, ...]
    batches: tuple[int, ...]
    rounds: int
    seconds: float
    bare: bool
    width: int
    height: int
    changes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    profile: Profile = "cpu"
    torch: bool = False
    pixels: bool = False
    max_batch: int = 0
    peer: PeerName = ""
    peer_checkpoint: Path | None = None

    @property
    def cases(self) -> list[tuple[int, int]]:
        """Clients and images a request: single images first, then batches of the clients' making."""
        return [(count, 1) for count in self.concurrency] + [(BATCH_CLIENTS, size) for size in self.batches]

    @property
    def sizes(self) -> list[int]:
        """Batches of the bare side: all that a case could at best become."""
        return sorted({1, *self.concurrency, *self.batches})


@dataclass
class Measured:
    """The rounds of everything: the same place in each list is the same round."""

    served: dict[tuple[int, int], list[LoopRound]] = field(default_factory=lambda: defaultdict(list))
    pixels: dict[tuple[int, int], list[LoopRound]] = field(default_factory=lambda: defaultdict(list))
    bare: dict[tuple[str, int], list[LoopRound]] = field(default_factory=lambda: defaultdict(list))
    peer: dict[tuple[int, int], list[LoopRound]] = field(default_factory=lambda: defaultdict(list))
    steps: dict[tuple[int, int], dict[str, StepTimes]] = field(default_factory=dict)


def report(plan: Plan, measured: Measured, title: str, console: Console) -> dict[str, Any]:
    """Prints the tables; the figures as plain data."""
    # The batch at which a kind of bare work has its highest rate.
    best = {
        kind: max(
            (key for key in measured.bare if key[0] == kind), key=lambda key: median_rate(measured.bare[key])
        )
        for kind in dict.fromkeys(kind for kind, _ in measured.bare)
    }
    figures: dict[str, Any] = {
        "machine": platform.processor() or platform.machine(),
        "plan": {**asdict(plan), "changes": {name: dict(values) for name, values in plan.changes.items()}},
        "best_bare_batch": {kind: size for kind, (_, size) in best.items()},
        "served": {},
        "pixels": {},
        "bare": {},
        "peer": {},
    }
    compared = [*best, *(["peer"] if measured.peer else [])]
    columns = "|".join(("side|img/s|p50 ms|p95 ms|p99 ms|batch", *(f"/{kind}" for kind in compared)))
    table = make_table(f"vision: {title}", columns, **NARROW)
    for (kind, size), rounds in measured.bare.items():
        summary = summarise_loops(rounds)
        figures["bare"][f"{kind}_{size}"] = asdict(summary)
        table.add_row(kind, f"{summary.rate:.1f}", *_ms(summary), str(size))
    for side, served in (("served", measured.served), ("pixels", measured.pixels)):
        for (clients, size), rounds in served.items():
            summary = summarise_loops(rounds)
            ratios = {kind: rate_ratio(rounds, measured.bare[key]) for kind, key in best.items()}
            if side == "served" and (theirs := measured.peer.get((clients, size))):
                ratios["peer"] = rate_ratio(rounds, theirs)
            figures[side][f"{clients}x{size}"] = {**asdict(summary), "ratio": ratios}
            batch = ""
            if side == "served":
                steps = measured.steps[clients, size]
                by_step = {name: times._asdict() for name, times in steps.items()}
                figures[side][f"{clients}x{size}"]["steps"] = by_step
                # Of a pipeline that of its classifier: others take smaller ones, which it waits for.
                one = steps.get("vision_classify") or steps["vision"]
                batch = f"{one.batch:.1f}"
            shown = [f"{ratios[kind]:.3f}" if kind in ratios else "" for kind in compared]
            name = f"{clients} x {size}" + (" px" if side == "pixels" else "")
            table.add_row(name, f"{summary.rate:.1f}", *_ms(summary), batch, *shown)
    for (clients, size), rounds in measured.peer.items():
        summary = summarise_loops(rounds)
        ratio = paired_ratio(measured.served[clients, size], rounds, lambda one: one.p50)
        figures["peer"][f"{clients}x{size}"] = {**asdict(summary), "served_p50_over": ratio}
        table.add_row(f"peer {clients} x {size}", f"{summary.rate:.1f}", *_ms(summary))
    console.print(table)
    console.print("n x m: served to n clients with m images a request; batch: what Triton formed of them")
    if measured.pixels:
        console.print("px: pixels sent to the classifier alone, nothing is decoded")
    if measured.peer:
        console.print(
            "peer: FastAPI + torch, one image a call; /peer: served images/s over its, same clients"
        )
    if best:
        console.print(f"/{', /'.join(best)}: its images/s over those of that work without Triton, best batch")
    if "engine" in best:
        case = max(measured.served, key=lambda one: median_rate(measured.served[one]))
        name = f"{case[0]}x{case[1]}"
        figures["best"] = {"case": name, **figures["served"][name]["ratio"]}
        ratio = figures["best"]["engine"]
        console.print(f"best served case {name}: {ratio:.3f} of the bare engine at batch {best['engine'][1]}")
    if lone := measured.served.get((1, 1)):
        for (kind, size), rounds in measured.bare.items():
            if size == 1:
                added = figures[f"added_ms_{kind}"] = added_ms(lone, rounds)
                console.print(f"one client, p50: {added:+.2f} ms against the bare {kind}")
        for name, times in measured.steps[1, 1].items():
            console.print(f"  {name}: {times.queue_ms:.2f} ms queue, {times.model_ms:.2f} ms in the model")
    return figures


def _ms(summary: Any) -> list[str]:
    return [f"{value:.1f}" for value in (summary.p50, summary.p95, summary.p99)]
