"""`trimodal bench llm`: measures throughput, TTFT and ITL of the served model, on request beside others.

Those are its bare engine, a second one with other parameters, and the peer: FastAPI + transformers.

It starts its own server on free ports from this repository, with the parameters of the
config and those given by --set. All sides stay loaded and take turns, round by round, so
that every one of them sees the same machine.
"""

from __future__ import annotations

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
from trimodal.bench.llm.peer import Dtype, peer_checkpoint, run_peer, running_peers, served_over
from trimodal.bench.llm.sides import BareEngine, Prompts, Round, Summary, run_served, run_wave, summarise
from trimodal.bench.peers.client import Peer
from trimodal.bench.peers.process import PeerName
from trimodal.llm.settings import LlmSettings
from trimodal.paths import default_repository
from trimodal.report.console import NARROW, make_table
from trimodal.repository import select_models
from trimodal.server.options import ServerOptions

Run = Callable[[Sequence[str]], Awaitable[Round]]


@dataclass(frozen=True)
class Plan:
    """What to measure. Lengths in tokens; `rounds` a number of streams, three times as many for one.

    `prompts`: a file, whose lines are asked instead of random words of each of the lengths `prompt_tokens`.
    `peer_checkpoint`: None for the one that the artefact's manifest names.
    """

    streams: tuple[int, ...] = (1, 8, 16)
    prompt_tokens: tuple[int, ...] = (64,)
    max_tokens: int = 64
    rounds: int = 3
    bare: bool = False
    prefix_tokens: int = 0
    prompts: Path | None = None
    changes: dict[str, str] = field(default_factory=dict)
    versus: dict[str, str] = field(default_factory=dict)
    peer: PeerName = ""
    peer_dtypes: tuple[Dtype, ...] = ("bfloat16", "float32")
    peer_checkpoint: Path | None = None


@dataclass(frozen=True)
class Sides:
    """What is asked: `ours` in turn, the served model last; then the peers, whatever that one was asked."""

    ours: dict[str, Run]
    peers: dict[str, Peer]


async def measure(plan: Plan, console: Console) -> dict[str, Any]:
    """Runs the plan and prints its tables; the figures as plain data.

    Raises:
        OperatorError: a setting is wrong, or the server or an engine does not start.
    """
    repository = default_repository()
    # A random prompt is taken as it is; lines of a file are questions, as users send them.
    changes = plan.changes if plan.prompts else {"apply_chat_template": "false", **plan.changes}
    settings = served_settings(repository, changes)
    checkpoint = peer_checkpoint(settings, plan.peer_checkpoint) if plan.peer else None
    sources = (
        {"prompts": Prompts(settings, plan.prompts, 0)}
        if plan.prompts
        else {f"prompt_{length}": Prompts(settings, None, length) for length in plan.prompt_tokens}
    )
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
        peers: dict[str, Peer] = {}
        if checkpoint:
            figures["peer"] = {"checkpoint": str(checkpoint.directory), "same": checkpoint.same}
            running = running_peers(checkpoint.directory, plan.peer_dtypes)
            peers = await stack.enter_async_context(running)
            if not checkpoint.same:
                console.print(
                    f"the artefact was not built from the peer's checkpoint, {checkpoint.directory}"
                )
        for key, prompts in sources.items():
            ours = {name: _bare_side(engine, prompts, plan.max_tokens) for name, engine in engines.items()}
            ours["served"] = partial(run_served, client, max_tokens=plan.max_tokens)
            title = f"llm: {settings.engine}, {Path(settings.artefact).name}, numerics {settings.numerics}"
            title += f"; {plan.prompts or key.removeprefix('prompt_')} + {plan.max_tokens} tokens"
            figures[key] = await _measure_streams(plan, title, prompts, Sides(ours, peers), console)
        for name, engine in engines.items():
            if (stats := engine.stats).drafted_tokens:
                per_step = stats.decoded_tokens / max(1, stats.decode_slots)
                accepted = f"acceptance {stats.accepted_tokens / stats.drafted_tokens:.2f}"
                console.print(f"{name}: {per_step:.2f} tokens per step, {accepted}; {stats.speculation_note}")
        if plan.prefix_tokens:
            figures["prefix"] = await _prefix(
                plan, console, next(iter(sources.values())), partial(run_served, client, max_tokens=4)
            )
    return figures


async def _measure_streams(
    plan: Plan, title: str, prompts: Prompts, sides: Sides, console: Console
) -> dict[str, Any]:
    """Every number of streams with prompts of one kind; prints the tables."""
    columns = "streams|side|tok/s|TTFT p50|TTFT p95|ITL p50|ITL p99|ratio"
    table = make_table(title, columns, **NARROW)
    ratios_title = "served over peer, medians of neighbouring rounds"
    peers = make_table(ratios_title, "streams|side|tok/s|TTFT p50|ITL p50", **NARROW)
    figures = {}
    for streams in plan.streams:
        rounds = await _run_rounds(plan, streams, prompts, sides)
        found = _compare(streams, {name: rounds[name] for name in sides.ours}, table)
        for name in sides.peers:
            summary = summarise(rounds[name])
            ratios = served_over(rounds["served"], rounds[name])
            found[name] = {**asdict(summary), "served_over": ratios}
            table.add_row(str(streams), name, *_shown(summary), "")
            peers.add_row(str(streams), name, *(f"{ratio:.3f}" for ratio in ratios.values()))
        figures[f"streams_{streams}"] = found
    if plan.versus:
        changed = ", ".join(f"{key}={text}" for key, text in plan.versus.items())
        table.caption = f"versus: bare with {changed}"
    console.print(table)
    if sides.peers:
        console.print(peers)
    if "bare" in sides.ours and 1 in plan.streams:
        added = figures["streams_1"]["served"]["ttft_added_ms"]
        console.print(f"TTFT added by serving, one stream, median of pairs: {added:.1f} ms")
    return figures


async def _run_rounds(plan: Plan, streams: int, prompts: Prompts, sides: Sides) -> dict[str, list[Round]]:
    """Rounds of all sides in turn; the first round, which warms a side up, is left out."""
    rounds: dict[str, list[Round]] = {name: [] for name in (*sides.ours, *sides.peers)}
    for _ in range(plan.rounds * (3 if streams == 1 else 1) + 1):
        texts: list[str] = []
        for name, run in sides.ours.items():
            # The same questions for all where they come from a file; else new ones, which no cache has.
            if not (texts and plan.prompts):
                texts = [prompts.next() for _ in range(streams)]
            rounds[name].append(await run(texts))
        # A peer has no cache: it gets the served side's prompts, and makes as many tokens of each. One that
        # ends its answers by itself would stop elsewhere, as its weights are not rounded alike.
        token_ids = [prompts.token_ids(text) for text in texts]
        tokens = [sample.tokens for sample in rounds["served"][-1].samples]
        for name, peer in sides.peers.items():
            rounds[name].append(await run_peer(peer, token_ids, tokens))
    return {name: counted for name, (_, *counted) in rounds.items()}


def _compare(streams: int, rounds: dict[str, list[Round]], table: Table) -> dict[str, Any]:
    """Adds a row for each side; the first one is what ratios refer to."""
    figures: dict[str, Any] = {}
    first = next(iter(rounds.values()))
    for name, counted in rounds.items():
        summary = summarise(counted)
        ratio = paired_ratio(counted, first, lambda one: one.tokens_per_second)
        pairs = zip(counted, first, strict=True)
        added = median(summarise([ours]).ttft_p50 - summarise([theirs]).ttft_p50 for ours, theirs in pairs)
        figures[name] = {**asdict(summary), "ratio": ratio, "ttft_added_ms": added}
        table.add_row(str(streams), name, *_shown(summary), "" if counted is first else f"{ratio:.3f}")
    return figures


def _shown(summary: Summary) -> list[str]:
    times = (summary.ttft_p50, summary.ttft_p95, summary.itl_p50, summary.itl_p99)
    shown = (f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms" for value in times)
    return [f"{summary.tokens_per_second:.1f}", *shown]


def _bare_side(engine: BareEngine, prompts: Prompts, max_tokens: int) -> Run:
    async def run(texts: Sequence[str]) -> Round:
        ids = [prompts.token_ids(text) for text in texts]
        return await run_wave(lambda number: engine.ask(ids[number], max_tokens), len(ids))

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
