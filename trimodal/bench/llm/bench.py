"""`trimodal bench llm`: measures throughput, TTFT and ITL of the served model, on request beside its engine.

It starts its own server on free ports from this repository, with the parameters of the
config and those given by --set. All sides stay loaded and take turns, round by round, so
that every one of them sees the same machine.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from trimodal.bench.common.closed_loop import paired_ratio
from trimodal.bench.common.serving import serving, settings_of
from trimodal.bench.common.tables import make_table
from trimodal.bench.llm.sides import BareEngine, Prompts, Round, run_served, summarise
from trimodal.llm.settings import LlmSettings
from trimodal.paths import default_repository
from trimodal.repository import select_models
from trimodal.server.options import ServerOptions

Run = Callable[[Sequence[str]], Awaitable[Round]]


@dataclass(frozen=True)
class Plan:
    """What to measure. Lengths in tokens; `rounds` a number of streams, three times as many for one."""

    streams: tuple[int, ...] = (1, 8, 16)
    prompt_tokens: int = 64
    max_tokens: int = 64
    rounds: int = 3
    bare: bool = False
    prefix_tokens: int = 0
    prompts: Path | None = None
    changes: dict[str, str] = field(default_factory=dict)
    versus: dict[str, str] = field(default_factory=dict)


async def measure(plan: Plan, console: Console) -> dict[str, Any]:
    """Runs the plan and prints its tables; the figures as plain data.

    Raises:
        OperatorError: a setting is wrong, or the server or an engine does not start.
    """
    repository = default_repository()
    # A random prompt is taken as it is; lines of a file are questions, as users send them.
    changes = plan.changes if plan.prompts else {"apply_chat_template": "false", **plan.changes}
    settings = served_settings(repository, changes)
    prompts = Prompts(settings, plan.prompts, plan.prompt_tokens)
    options = ServerOptions.on_free_ports("llm", changes={"llm": changes}, repository=repository)
    figures: dict[str, Any] = {"machine": platform.platform(), "plan": asdict(plan)}
    async with AsyncExitStack() as stack:
        _, client = await stack.enter_async_context(serving(options))
        engines: dict[str, BareEngine] = {}
        if plan.bare or plan.versus:
            engines["bare"] = stack.enter_context(closing(BareEngine(settings)))
        if plan.versus:
            other = served_settings(repository, changes | plan.versus)
            engines["versus"] = stack.enter_context(closing(BareEngine(other)))
        sides = {name: _bare_side(engine, prompts, plan.max_tokens) for name, engine in engines.items()}
        sides["served"] = partial(run_served, client, max_tokens=plan.max_tokens)
        title = f"llm: {settings.engine}, {Path(settings.artefact).name}, numerics {settings.numerics}"
        title += f"; {plan.prompts or plan.prompt_tokens} + {plan.max_tokens} tokens"
        table = make_table(title, "streams|side|tok/s|TTFT p50|TTFT p95|ITL p50|ITL p99|ratio")
        for streams in plan.streams:
            figures[f"streams_{streams}"] = await _compare(plan, streams, prompts, sides, table)
        if plan.versus:
            changed = ", ".join(f"{key}={text}" for key, text in plan.versus.items())
            table.caption = f"versus: bare with {changed}"
        console.print(table)
        for name, engine in engines.items():
            if (stats := engine.stats).drafted_tokens:
                per_step = stats.decoded_tokens / max(1, stats.decode_slots)
                accepted = f"acceptance {stats.accepted_tokens / stats.drafted_tokens:.2f}"
                console.print(f"{name}: {per_step:.2f} tokens per step, {accepted}; {stats.speculation_note}")
        if "bare" in engines and 1 in plan.streams:
            added = figures["streams_1"]["served"]["ttft_added_ms"]
            console.print(f"TTFT added by serving, one stream, median of pairs: {added:.1f} ms")
        if plan.prefix_tokens:
            figures["prefix"] = await _prefix(
                plan, console, prompts, partial(run_served, client, max_tokens=4)
            )
    return figures


async def _compare(
    plan: Plan, streams: int, prompts: Prompts, sides: dict[str, Run], table: Table
) -> dict[str, Any]:
    """Rounds of all sides in turn for one number of streams; the first side is what ratios refer to."""
    rounds: dict[str, list[Round]] = {name: [] for name in sides}
    for _ in range(plan.rounds * (3 if streams == 1 else 1) + 1):
        # The same questions for all where they come from a file; else new ones, which no cache has.
        texts = [prompts.next() for _ in range(streams)]
        for name, run in sides.items():
            rounds[name].append(await run(texts))
            if not plan.prompts:
                texts = [prompts.next() for _ in range(streams)]
    figures: dict[str, Any] = {}
    first = next(iter(rounds.values()))[1:]
    for name, (_, *counted) in rounds.items():  # the first round of a size warms a side up
        summary = summarise(counted)
        ratio = paired_ratio(counted, first, lambda one: one.tokens_per_second)
        pairs = zip(counted, first, strict=True)
        added = median(summarise([ours]).ttft_p50 - summarise([theirs]).ttft_p50 for ours, theirs in pairs)
        figures[name] = {**asdict(summary), "ratio": ratio, "ttft_added_ms": added}
        times = (summary.ttft_p50, summary.ttft_p95, summary.itl_p50, summary.itl_p99)
        shown = (f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms" for value in times)
        rate, compared = f"{summary.tokens_per_second:.1f}", "" if counted == first else f"{ratio:.3f}"
        table.add_row(str(streams), name, rate, *shown, compared)
    return figures


def _bare_side(engine: BareEngine, prompts: Prompts, max_tokens: int) -> Run:
    async def run(texts: Sequence[str]) -> Round:
        return await asyncio.to_thread(engine.run, [prompts.token_ids(text) for text in texts], max_tokens)

    return run


async def _prefix(plan: Plan, console: Console, prompts: Prompts, served: Run) -> dict[str, float]:
    """TTFT of prompts that begin alike, the first against the second."""
    cold: list[Round] = []
    warm: list[Round] = []
    for _ in range(plan.rounds + 1):
        prefix = prompts.random(plan.prefix_tokens)
        for rounds in (cold, warm):
            rounds.append(await served([f"{prefix} {prompts.random(16)}"]))
    cold, warm = cold[1:], warm[1:]
    ratio = paired_ratio(cold, warm, lambda one: one.samples[0].ttft)
    first, second = summarise(cold).ttft_p50, summarise(warm).ttft_p50
    console.print(
        f"shared prefix of {plan.prefix_tokens} tokens: TTFT p50 cold {first:.0f} ms, "
        f"warm {second:.0f} ms, {ratio:.1f} times lower"
    )
    return {"cold_ms": first, "warm_ms": second, "ratio": ratio}


def served_settings(repository: Path, changes: dict[str, str]) -> LlmSettings:
    """Returns the settings that the served model will have, for a bare engine."""
    model = select_models(repository, ("llm",), "cpu")["llm"]
    return settings_of(LlmSettings, model, {**changes, "version_directory": str(repository / "llm" / "1")})
