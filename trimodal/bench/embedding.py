"""`trimodal bench embedding`: measures texts a second and latency of the served model and its bare engine.

The bare side embeds as many texts at once as there are clients: the best batch that
they could become. Both sides take turns within every round.
"""

from __future__ import annotations

import platform
import random
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from trimodal.bench.common.bare_process import BareProcess, Works
from trimodal.bench.common.closed_loop import LoopRound, LoopSummary, run_clients, summarise_loops
from trimodal.bench.common.repository import bench_options
from trimodal.bench.common.samples import paired_ratio
from trimodal.bench.common.triton_counters import Statistics, between
from trimodal.client import Client
from trimodal.embedding.settings import EmbeddingSettings
from trimodal.repository import select_models
from trimodal.server.options import Profile
from trimodal.server.process import TritonServer
from trimodal.settings import parse_parameters

TEXTS = 256


@dataclass(frozen=True)
class Plan:
    """What to measure. Every round takes `seconds` for each number of clients of each side."""

    concurrency: tuple[int, ...]
    words: int
    rounds: int
    seconds: float
    bare: bool
    changes: Mapping[str, str]
    profile: Profile = "cpu"


def random_texts(words: int) -> list[str]:
    """Different texts of so many words out of a small vocabulary, the same in every run."""
    rng = random.Random(0)
    vocabulary = ["the", "a", "cat", "dog", "house", "river", "reads", "builds", "old", "server", "of", "in"]
    return [" ".join(rng.choices(vocabulary, k=words)) for _ in range(TEXTS)]


def open_bare(directory: Path, settings: EmbeddingSettings, texts: Sequence[str]) -> Works:
    """`embed` on a batch of texts; opened in the bare side's process."""
    from trimodal.embedding.engines.protocol import open_engine

    engine = open_engine(directory, settings)

    def embed(batch: int, number: int) -> None:
        engine.embed([texts[(number * batch + index) % len(texts)] for index in range(batch)])

    return {"embed": embed}


async def measure(plan: Plan, console: Console) -> dict[str, Any]:
    """Runs the plan and prints its table; the figures as plain data.

    Raises:
        OperatorError: a side cannot start.
    """
    texts = random_texts(plan.words)
    served: dict[int, list[LoopRound]] = {clients: [] for clients in plan.concurrency}
    alone: dict[int, list[LoopRound]] = {clients: [] for clients in plan.concurrency}
    formed: dict[int, float] = {}
    async with AsyncExitStack() as stack:
        options = stack.enter_context(
            bench_options(("embedding",), plan.profile, {"embedding": plan.changes})
        )
        model = select_models(options.repository, options.models, plan.profile)["embedding"]
        source = str(model.config_file.relative_to(options.repository))
        settings = parse_parameters(EmbeddingSettings, model.parameters, source=source)
        directory = (model.version_directory / settings.artefact).resolve()
        server = stack.enter_context(TritonServer(options))
        client = await stack.enter_async_context(Client(server.grpc_url))
        bare = stack.enter_context(BareProcess(open_bare, directory, settings, texts)) if plan.bare else None
        statistics = stack.enter_context(Statistics(server.grpc_url, ["embedding"]))
        for index in range(plan.rounds + 1):
            # Round 0 warms both sides up and is not counted.
            seconds = plan.seconds if index else min(1.0, plan.seconds)
            for clients in plan.concurrency:
                before = statistics.read()
                ours = await run_clients(
                    lambda number: client.embed([texts[number % len(texts)]], timeout=60.0),
                    clients=clients,
                    items=1,
                    seconds=seconds,
                )
                formed[clients] = between(before, statistics.read(), 1)["embedding"].batch
                theirs = await bare.run("embed", batch=clients, seconds=seconds) if bare else None
                if index:
                    served[clients].append(ours)
                if index and theirs:
                    alone[clients].append(theirs)
    return _report(plan, served, alone, formed, settings, console)


def _report(
    plan: Plan,
    served: Mapping[int, list[LoopRound]],
    alone: Mapping[int, list[LoopRound]],
    formed: Mapping[int, float],
    settings: EmbeddingSettings,
    console: Console,
) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "machine": platform.processor() or platform.machine(),
        "plan": {**asdict(plan), "changes": dict(plan.changes)},
    }
    name = settings.artefact.rpartition("/")[2]
    table = Table(title=f"embedding: {settings.engine} {name}, texts of {plan.words} words")
    for column in ("clients", "side", "texts/s", "p50", "p95", "p99", "batch", "ratio"):
        table.add_column(column, justify="left" if column == "side" else "right")
    for clients in plan.concurrency:
        ratio = ""
        if rounds := alone[clients]:
            without = summarise_loops(rounds)
            figures[f"bare_{clients}"] = asdict(without)
            figures[f"ratio_{clients}"] = paired_ratio(served[clients], rounds, lambda one: one.rate)
            ratio = f"{figures[f'ratio_{clients}']:.3f}"
            table.add_row(str(clients), "bare", *_shown(without), str(clients), "")
            pairs = zip(served[clients], rounds, strict=True)
            figures[f"added_ms_{clients}"] = 1e3 * median(our.p50 - their.p50 for our, their in pairs)
        summary = summarise_loops(served[clients])
        figures[f"served_{clients}"] = {**asdict(summary), "batch": formed[clients]}
        table.add_row(str(clients), "served", *_shown(summary), f"{formed[clients]:.1f}", ratio)
    console.print(table)
    if "added_ms_1" in figures:
        console.print(f"one client, p50: {figures['added_ms_1']:+.2f} ms against the bare engine")
    return figures


def _shown(summary: LoopSummary) -> list[str]:
    return [f"{summary.rate:.1f}", *(f"{value:.1f} ms" for value in (summary.p50, summary.p95, summary.p99))]
