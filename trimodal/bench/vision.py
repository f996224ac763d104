"""`trimodal bench vision`: images a second and latency of the ensemble, beside the bare engine on request.

It starts its own server on free ports from this repository. Every round measures all cases of
both sides one after the other, so that each ratio is of neighbours in time.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from trimodal.bench.bare import BareProcess
from trimodal.bench.closed_loop import LoopRound, summarise_loops
from trimodal.bench.counters import Statistics, StepTimes, between
from trimodal.bench.samples import paired_ratio
from trimodal.bench.vision_sides import STEPS, jpegs, open_bare, run_served, step_settings
from trimodal.client import Client
from trimodal.server.options import ServerOptions, default_repository
from trimodal.server.process import TritonServer
from trimodal.vision.settings import ClassifySettings

# Clients that send batches: while one batch is classified the next is decoded and a third is on its way.
BATCH_CLIENTS = 3


@dataclass(frozen=True)
class Plan:
    """What to measure. Every round takes `seconds` for each case of each side."""

    concurrency: tuple[int, ...]
    batches: tuple[int, ...]
    rounds: int
    seconds: float
    bare: bool
    width: int
    height: int
    changes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

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

    served: dict[tuple[int, int], list[LoopRound]] = field(default_factory=dict)
    bare: dict[tuple[str, int], list[LoopRound]] = field(default_factory=dict)
    steps: dict[tuple[int, int], dict[str, StepTimes]] = field(default_factory=dict)


async def measure(plan: Plan, console: Console) -> dict[str, Any]:
    """Runs the plan and prints its tables; the figures as plain data.

    Raises:
        OperatorError: a side cannot start.
    """
    repository = default_repository().resolve()
    settings = step_settings(repository, plan.changes)
    classify = settings["vision_classify"]
    assert isinstance(classify, ClassifySettings)
    files = jpegs(plan.width, plan.height)
    options = ServerOptions(
        repository=repository,
        models=("vision",),
        http_port=0,
        grpc_port=0,
        metrics_port=0,
        changes=plan.changes,
    )
    measured = Measured()
    async with AsyncExitStack() as stack:
        server = stack.enter_context(TritonServer(options))
        client = await stack.enter_async_context(Client(server.grpc_url))
        bare = stack.enter_context(BareProcess(open_bare, repository, settings, files)) if plan.bare else None
        statistics = stack.enter_context(Statistics(server.grpc_url, list(STEPS)))
        for index in range(plan.rounds + 1):
            # Round 0 warms both sides up and is not counted.
            seconds = plan.seconds if index else min(1.0, plan.seconds)
            for case in plan.cases:
                before = statistics.read()
                one = await run_served(client, files, clients=case[0], batch=case[1], seconds=seconds)
                if index:
                    measured.served.setdefault(case, []).append(one)
                    measured.steps[case] = between(before, statistics.read(), case[1])
            for kind, size in ((kind, size) for size in plan.sizes for kind in ("engine", "pipeline")):
                if bare:
                    one = await bare.run(kind, batch=size, seconds=seconds)
                    if index:
                        measured.bare.setdefault((kind, size), []).append(one)
    title = f"{classify.engine} {classify.artefact.rpartition('/')[2]}, JPEG {plan.width}x{plan.height}"
    return report(plan, measured, title, console)


def report(plan: Plan, measured: Measured, title: str, console: Console) -> dict[str, Any]:
    """Prints the tables; the figures as plain data."""
    best = {kind: _best(measured.bare, kind) for kind in ("engine", "pipeline") if measured.bare}
    figures: dict[str, Any] = {
        "machine": platform.processor() or platform.machine(),
        "plan": {**asdict(plan), "changes": {name: dict(values) for name, values in plan.changes.items()}},
        "best_bare_batch": {kind: size for kind, (_, size) in best.items()},
        "served": {},
        "bare": {},
    }
    table = Table(title=f"vision: {title}")
    for column in ("side", "img/s", "p50 ms", "p95 ms", "p99 ms", "batch", "/engine", "/pipeline"):
        table.add_column(column, justify="left" if column == "side" else "right")
    for (kind, size), rounds in measured.bare.items():
        summary = summarise_loops(rounds)
        figures["bare"][f"{kind}_{size}"] = asdict(summary)
        table.add_row(kind, f"{summary.rate:.1f}", *_ms(summary), str(size), "", "")
    for (clients, size), rounds in measured.served.items():
        summary = summarise_loops(rounds)
        ratios = {
            kind: paired_ratio(rounds, measured.bare[key], lambda one: one.rate) for kind, key in best.items()
        }
        formed = {name: asdict(times) for name, times in measured.steps[clients, size].items()}
        figures["served"][f"{clients}x{size}"] = {**asdict(summary), "ratio": ratios, "steps": formed}
        batch = f"{measured.steps[clients, size]['vision_classify'].batch:.1f}"
        shown = [f"{ratio:.3f}" for ratio in ratios.values()] or ["", ""]
        table.add_row(f"{clients} x {size}", f"{summary.rate:.1f}", *_ms(summary), batch, *shown)
    console.print(table)
    console.print("n x m: served to n clients with m images a request; batch: what Triton formed of them")
    console.print("/engine, /pipeline: its images/s over those of the bare one at its best batch")
    if best:
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
    for kind in ("engine", "pipeline"):
        if rounds := measured.bare.get((kind, 1)):
            added = 1e3 * median(our.p50 - their.p50 for our, their in zip(served, rounds, strict=True))
            figures[f"added_ms_{kind}"] = added
            console.print(f"one client, p50: {added:+.2f} ms against the bare {kind}")
    for name, times in measured.steps[1, 1].items():
        console.print(f"  {name}: {times.queue_ms:.2f} ms queue, {times.model_ms:.2f} ms in the model")


def _best(bare: Mapping[tuple[str, int], list[LoopRound]], kind: str) -> tuple[str, int]:
    """The batch at which a kind of bare work has its highest rate."""
    return max((key for key in bare if key[0] == kind), key=lambda key: median(one.rate for one in bare[key]))


def _ms(summary: Any) -> list[str]:
    return [f"{value:.1f}" for value in (summary.p50, summary.p95, summary.p99)]
