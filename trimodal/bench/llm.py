"""`trimodal bench llm`: throughput, TTFT and ITL of the served model, beside its bare engine on request.

It starts its own server on free ports from this repository, with the parameters of the
config and those given by --set; the two sides take turns so that both see the same machine.
"""

from __future__ import annotations

import asyncio
import json
import platform
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from trimodal.bench.llm_sides import BareEngine, run_served
from trimodal.bench.samples import Round, Summary, paired_ratio, summarise
from trimodal.client import Client
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tokenizer import ByteTokenizer, CheckpointTokenizer
from trimodal.server.options import ServerOptions, default_repository
from trimodal.server.process import TritonServer
from trimodal.server.repository import select_models
from trimodal.settings import parse_parameters


@dataclass(frozen=True)
class Plan:
    """What to measure: lengths in tokens, rounds per stream count (more for few streams)."""

    streams: tuple[int, ...]
    prompt_tokens: int
    max_tokens: int
    rounds: int
    bare: bool
    prefix_tokens: int
    changes: dict[str, str]


class Prompts:
    """Fresh random prompts of a length: none shares a prefix with another."""

    def __init__(self, settings: LlmSettings, seed: int = 0) -> None:
        self.tokenizer = (
            ByteTokenizer() if settings.engine == "fake" else CheckpointTokenizer(settings.artefact_directory)
        )
        self._rng = random.Random(seed)
        self._words = sorted({"".join(self._rng.choices("abcdefghij", k=4)) for _ in range(3000)})

    def text(self, tokens: int) -> str:
        """Words that encode to about `tokens` tokens, at most."""
        words: list[str] = []
        text = self._rng.choice(self._words)
        while len(self.tokenizer.encode_prompt(text)) < tokens:
            words.append(text)
            text = " ".join([*words[-1:], *self._rng.choices(self._words, k=4)])
        return words[-1] if words else text


async def measure(plan: Plan, console: Console) -> dict[str, Any]:
    """Runs the plan and prints its tables; the figures as plain data."""
    repository = default_repository()
    # The prompt is taken as it is: both sides must see the same tokens.
    changes = {"apply_chat_template": "false", **plan.changes}
    settings = _settings(repository, changes)
    prompts = Prompts(settings)
    options = ServerOptions(
        repository=repository,
        models=("llm",),
        http_port=0,
        grpc_port=0,
        metrics_port=0,
        changes={"llm": changes},
    )
    with TritonServer(options) as server:
        async with Client(server.grpc_url) as client:
            bare = BareEngine(settings) if plan.bare else None
            try:
                return await _measure(plan, console, prompts, client, bare, settings)
            finally:
                if bare:
                    bare.__exit__(None, None, None)


async def _measure(
    plan: Plan,
    console: Console,
    prompts: Prompts,
    client: Client,
    bare: BareEngine | None,
    settings: LlmSettings,
) -> dict[str, Any]:
    figures: dict[str, Any] = {"machine": platform.processor() or platform.machine(), "plan": asdict(plan)}
    title = f"llm: {settings.engine}, {Path(settings.artefact).name}, numerics {settings.numerics}"
    table = Table(title=f"{title}; {plan.prompt_tokens} + {plan.max_tokens} tokens")
    for column in ("streams", "side", "tok/s", "TTFT p50", "TTFT p95", "ITL p50", "ITL p99", "ratio"):
        table.add_column(column, justify="left" if column == "side" else "right")
    for streams in plan.streams:
        served_rounds: list[Round] = []
        bare_rounds: list[Round] = []
        for index in range(plan.rounds * (3 if streams == 1 else 1) + 1):
            texts = [prompts.text(plan.prompt_tokens) for _ in range(streams)]
            served, _ = await run_served(client, texts, plan.max_tokens)
            if bare:
                texts = [prompts.text(plan.prompt_tokens) for _ in range(streams)]
                ids = [prompts.tokenizer.encode_prompt(text) for text in texts]
                alone, _ = await asyncio.to_thread(bare.run, ids, plan.max_tokens)
            if index == 0:
                continue  # the first round of a size warms both sides up
            served_rounds.append(served)
            if bare:
                bare_rounds.append(alone)
        ratio = None
        if bare:
            ratio = paired_ratio(served_rounds, bare_rounds, lambda one: one.tokens_per_second)
            without = summarise(bare_rounds)
            _row(table, streams, "bare", without, None)
            figures[f"bare_{streams}"] = asdict(without)
            figures[f"ratio_{streams}"] = ratio
        summary = summarise(served_rounds)
        _row(table, streams, "served", summary, ratio)
        figures[f"served_{streams}"] = asdict(summary)
        if bare:
            figures[f"ttft_added_ms_{streams}"] = summary.ttft_p50 - without.ttft_p50
    console.print(table)
    if bare and 1 in plan.streams:
        console.print(f"TTFT added by serving, one stream, p50: {figures['ttft_added_ms_1']:.1f} ms")
    if plan.prefix_tokens:
        figures["prefix"] = await _prefix(plan, console, prompts, client)
    return figures


async def _prefix(plan: Plan, console: Console, prompts: Prompts, client: Client) -> dict[str, float]:
    """TTFT of prompts that begin alike, the first against the second."""
    cold: list[Round] = []
    warm: list[Round] = []
    for _ in range(plan.rounds + 1):
        prefix = prompts.text(plan.prefix_tokens)
        for rounds in (cold, warm):
            one, _ = await run_served(client, [f"{prefix} {prompts.text(16)}"], 4)
            rounds.append(one)
    cold, warm = cold[1:], warm[1:]
    ratio = paired_ratio(cold, warm, lambda one: one.samples[0].ttft)
    first, second = summarise(cold).ttft_p50, summarise(warm).ttft_p50
    console.print(
        f"shared prefix of {plan.prefix_tokens} tokens: TTFT p50 cold {first:.0f} ms, "
        f"warm {second:.0f} ms, {ratio:.1f} times lower"
    )
    return {"cold_ms": first, "warm_ms": second, "ratio": ratio}


def _settings(repository: Path, changes: dict[str, str]) -> LlmSettings:
    """The settings that the served model will have, for the bare side."""
    model = select_models(repository, ("llm",), "cpu")["llm"]
    version = repository / "llm" / "1"
    return parse_parameters(
        LlmSettings,
        {**model.parameters, **changes, "version_directory": str(version)},
        source="llm/configs/cpu.pbtxt",
    )


def _row(table: Table, streams: int, side: str, summary: Summary, ratio: float | None) -> None:
    times = (summary.ttft_p50, summary.ttft_p95, summary.itl_p50, summary.itl_p99)
    table.add_row(
        str(streams),
        side,
        f"{summary.tokens_per_second:.1f}",
        *(f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms" for value in times),
        f"{ratio:.3f}" if ratio else "",
    )


def write_json(path: Path, figures: dict[str, Any]) -> None:
    """The figures as a JSON file."""
    path.write_text(json.dumps(figures, indent=2) + "\n")
