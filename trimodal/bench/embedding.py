"""`trimodal bench embedding`: measures texts a second and latency of the served model and its bare engine.

The bare side embeds as many texts at once as there are clients: the best batch that
they could become. Both sides take turns within every round.
"""

from __future__ import annotations

import platform
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from trimodal.bench.common.closed_loop import (
    BareProcess,
    LoopRound,
    LoopSummary,
    Works,
    added_ms,
    rate_ratio,
    run_clients,
    some,
    summarise_loops,
)
from trimodal.bench.common.serving import Statistics, bench_options, between, serving, settings_of
from trimodal.embedding.settings import EmbeddingSettings
from trimodal.report.console import make_table
from trimodal.repository import select_models
from trimodal.server.options import Profile

TEXTS = 256
VOCABULARY = ["the", "a", "cat", "dog", "house", "river", "reads", "builds", "old", "server", "of", "in"]


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
    return [" ".join(rng.choices(VOCABULARY, k=words)) for _ in range(TEXTS)]


def open_bare(directory: Path, settings: EmbeddingSettings, texts: Sequence[str]) -> Works:
    """`embed` on a batch of texts; opened in the bare side's process."""
    from trimodal.embedding.engines.protocol import open_engine

    engine = open_engine(directory, settings)
    return {"embed": lambda batch, number: engine.embed(some(texts, number, batch))}


async def measure(plan: Plan, console: Console) -> dict[str, Any]:
    """Runs the plan and prints its table; the figures as plain data."""
    texts = random_texts(plan.words)
    served: dict[int, list[LoopRound]] = defaultdict(list)
    alone: dict[int, list[LoopRound]] = defaultdict(list)
    formed: dict[int, float] = {}
    async with AsyncExitStack() as stack:
        options = stack.enter_context(
            bench_options(("embedding",), plan.profile, {"embedding": plan.changes})
        )
        model = select_models(options.repository, options.models, plan.profile)["embedding"]
        settings = settings_of(EmbeddingSettings, model)
        directory = (model.version_directory / settings.artefact).resolve()
        server, client = await stack.enter_async_context(serving(options))
        bare = stack.enter_context(BareProcess(open_bare, directory, settings, texts)) if plan.bare else None
        statistics = stack.enter_context(closing(Statistics(server.grpc_url, ["embedding"])))
        for index in range(plan.rounds + 1):
            # Round 0 warms both sides up and is not counted.
            seconds = plan.seconds if index else min(1.0, plan.seconds)
            for clients in plan.concurrency:
                before = statistics.read()
                ours = await run_clients(
                    lambda number: client.embed(some(texts, number, 1), timeout=60.0),
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
    title = f"embedding: {settings.engine} {directory.name}, texts of {plan.words} words"
    return _report(plan, served, alone, formed, title, console)


def _report(
    plan: Plan,
    served: Mapping[int, list[LoopRound]],
    alone: Mapping[int, list[LoopRound]],
    formed: Mapping[int, float],
    title: str,
    console: Console,
) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "machine": platform.processor() or platform.machine(),
        "plan": {**asdict(plan), "changes": dict(plan.changes)},
    }
    table = make_table(title, "clients|side|texts/s|p50|p95|p99|batch|ratio")
    for clients, ours in served.items():
        ratio = ""
        if theirs := alone.get(clients):
            without = summarise_loops(theirs)
            figures[f"bare_{clients}"] = asdict(without)
            figures[f"ratio_{clients}"] = rate_ratio(ours, theirs)
            figures[f"added_ms_{clients}"] = added_ms(ours, theirs)
            ratio = f"{figures[f'ratio_{clients}']:.3f}"
            table.add_row(str(clients), "bare", *_shown(without), str(clients), "")
        summary = summarise_loops(ours)
        figures[f"served_{clients}"] = {**asdict(summary), "batch": formed[clients]}
        table.add_row(str(clients), "served", *_shown(summary), f"{formed[clients]:.1f}", ratio)
    console.print(table)
    if "added_ms_1" in figures:
        console.print(f"one client, p50: {figures['added_ms_1']:+.2f} ms against the bare engine")
    return figures


def _shown(summary: LoopSummary) -> list[str]:
    return [f"{summary.rate:.1f}", *(f"{value:.1f} ms" for value in (summary.p50, summary.p95, summary.p99))]
