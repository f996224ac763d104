"""Measures the latency of cache hits through Triton, beside a bare round trip and an embedding.

    bare       a request to the same model that needs neither cache nor engine: cancelling an
               unknown key. The same stream, the same tensors out, one final response.
    exact      a question that was asked before
    embedding  the embedding model's own answer to the text of the semantic hit, as a client sees it
    semantic   a paraphrase of a question that was asked before

One request is in flight at a time, and the four take turns, so all see the same machine.
"""

from __future__ import annotations

import asyncio
import json
import platform
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from trimodal.bench.common.closed_loop import milliseconds
from trimodal.bench.common.serving import serving
from trimodal.client import Answer, Client
from trimodal.errors import OperatorError
from trimodal.report.console import make_table
from trimodal.server.options import ServerOptions

SIDES = ("bare", "exact", "embedding", "semantic")
GOALS_MS = {"exact": ("bare", 3.0), "semantic": ("embedding", 10.0)}
"""Hit → what it is compared with, and by how much its p95 may be above that."""
PAIRS = Path(__file__).parent / "data" / "tune.jsonl"
_UNKNOWN_KEY = "a key that no request has"
_MOST_PAIRS = 32
_CANDIDATES = 160
_TOKENS = 48  # enough for the fake engine to come to its full stop, wherever it begins
_LIMIT_S = 60.0
_VOCABULARY = (
    "river", "old", "server", "reads", "builds", "open", "blue", "garden", "slow", "paper", "engine",
)  # fmt: skip
REQUESTS = 400
"""Of each side, after a tenth of them that does not count."""
ENTRIES = 1_000
"""Other questions in the store, of the same tenant and system prompt."""


@dataclass
class Times:
    """Seconds of each side's requests, of the hits only those that were hits; `above`: in the same turn."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {side: [] for side in SIDES})
    above: dict[str, list[float]] = field(default_factory=lambda: {side: [] for side in GOALS_MS})
    missed: dict[str, int] = field(default_factory=lambda: {side: 0 for side in GOALS_MS})


async def measure(console: Console) -> dict[str, Any]:
    """Starts a server with a cache of its own, fills it, measures, and prints the table; the figures.

    Raises:
        OperatorError: the server does not start, or no paraphrase is a hit.
    """
    with tempfile.TemporaryDirectory(prefix="trimodal-bench-") as folder:
        llm = {
            "engine": "fake",
            "fake_step_ms": "0",
            "fake_prefill_us": "0",
            "fake_answer": "An answer of some forty characters. ",
            "cache": "semantic",
            "cache_store": str(Path(folder) / "answers.sqlite"),
        }
        options = ServerOptions.on_free_ports("llm", "embedding", "judge", changes={"llm": llm})
        async with serving(options) as (_, client):
            pairs = await _paraphrases(client)
            await _fill(client, ENTRIES)
            times = await _take_turns(client, pairs, REQUESTS)
    figures = figures_of(times) | {
        "machine": platform.processor() or platform.machine(),
        "plan": {"requests": REQUESTS, "entries": ENTRIES},
        "pairs": len(pairs),
    }
    _show(console, figures)
    return figures


def figures_of(times: Times) -> dict[str, Any]:
    """Milliseconds a side, what hits cost above their comparison, and whether that is in the goal.

    `added` has the differences of the two sides' percentiles, which the goal is about, and as `paired_p95`
    the 95th percentile of the differences within a turn: what is uneven on either side is in it.
    """
    sides = {
        side: {
            "requests": len(seconds),
            **{f"p{percent}": milliseconds(seconds, percent) for percent in (50, 95, 99)},
        }
        for side, seconds in times.seconds.items()
    }
    added: dict[str, dict[str, Any]] = {}
    for hit, (other, goal) in GOALS_MS.items():
        p50, p95 = (sides[hit][key] - sides[other][key] for key in ("p50", "p95"))
        added[hit] = {"above": other, "p50": p50, "p95": p95, "goal_p95": goal}
        added[hit]["paired_p95"] = milliseconds(times.above[hit], 95)
        added[hit]["met"] = bool(times.seconds[hit]) and p95 <= goal
        sides[hit]["missed"] = times.missed[hit]
    return {"sides": sides, "added": added}


async def _paraphrases(client: Client) -> list[tuple[str, str]]:
    """Pairs of the tuning part whose second question is answered by the first one's answer."""
    lines = (json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines() if line.strip())
    pairs = [(one["a"], one["b"]) for one in lines if one["label"] == "same"][:_CANDIDATES]
    await _each([stored for stored, _ in pairs], lambda question: _keep(client, question), 4)
    found: list[tuple[str, str]] = []
    for stored, asked in pairs:
        if len(found) < _MOST_PAIRS and await _asked(client, asked) == "semantic":
            found.append((stored, asked))
    if not found:
        raise OperatorError(
            f"none of {len(pairs)} paraphrases was a semantic hit: there is nothing to measure"
        )
    return found


async def _keep(client: Client, question: str) -> None:
    """Has an answer generated and stored, whatever is near it, and waits until it is."""
    until = time.monotonic() + _LIMIT_S
    while time.monotonic() < until:
        if not (await _ask(client, question, "no-cache")).text:
            return  # The fake engine began at its full stop: nothing to keep.
        for _ in range(20):
            if await _asked(client, question) == "exact":
                return
            await asyncio.sleep(0.005)
    raise OperatorError(f"the answer to {question[:40]!r} was not kept within {_LIMIT_S:g} s")


async def _asked(client: Client, question: str) -> str:
    """How it was answered: exact, semantic or, generated and not kept, empty."""
    return (await _ask(client, question, "no-store")).note.cache


async def _ask(client: Client, question: str, control: str) -> Answer:
    return await client.complete(
        question, max_tokens=_TOKENS, stop=".", cache_control=control, timeout=_LIMIT_S
    )


async def _fill(client: Client, entries: int) -> None:
    rng = random.Random(0)
    questions = [f"{' '.join(rng.choices(_VOCABULARY, k=10))} {number}" for number in range(entries)]
    await _each(questions, lambda question: _keep(client, question), 4)


async def _each(items: Sequence[Any], work: Callable[[Any], Awaitable[None]], at_once: int) -> None:
    """`work` on every item, so many at a time."""
    left = iter(items)

    async def one() -> None:
        for item in left:
            await work(item)

    await asyncio.gather(*(one() for _ in range(at_once)))


async def _take_turns(client: Client, pairs: Sequence[tuple[str, str]], requests: int) -> Times:
    times = Times()
    for number in range(-(requests // 10), requests):
        stored, asked = pairs[number % len(pairs)]
        turns: dict[str, Callable[[], Awaitable[object]]] = {
            "bare": lambda: client.cancel(_UNKNOWN_KEY),
            "exact": lambda question=stored: _asked(client, question),  # type: ignore[misc]
            "embedding": lambda question=asked: client.embed([question]),  # type: ignore[misc]
            "semantic": lambda question=asked: _asked(client, question),  # type: ignore[misc]
        }
        turn_s: dict[str, float] = {}
        for side, turn in turns.items():
            began = time.perf_counter()
            said = await turn()
            turn_s[side] = time.perf_counter() - began
            if number < 0:
                continue
            if side not in GOALS_MS:
                times.seconds[side].append(turn_s[side])
            elif said == side:
                times.seconds[side].append(turn_s[side])
                times.above[side].append(turn_s[side] - turn_s[GOALS_MS[side][0]])
            else:
                times.missed[side] += 1
    return times


def _show(console: Console, figures: Mapping[str, Any]) -> None:
    title = f"cache: hits through Triton, {figures['plan']['entries']} other answers stored"
    table = make_table(title, "side|requests|p50|p95|p99")
    for side, one in figures["sides"].items():
        table.add_row(side, str(one["requests"]), *(f"{one[key]:.2f} ms" for key in ("p50", "p95", "p99")))
    console.print(table)
    for side, added in figures["added"].items():
        goal = f"goal {added['goal_p95']:g} ms: {'met' if added['met'] else 'missed'}"
        cost = f"p50 {added['p50']:+.2f} ms, p95 {added['p95']:+.2f} ms"
        console.print(f"{side} hit above {added['above']}: {cost} ({goal})")
        console.print(f"  p95 of the difference within a turn: {added['paired_p95']:+.2f} ms")
        if missed := figures["sides"][side]["missed"]:
            console.print(f"{side}: {missed} requests were no hits (past the budget) and are not counted")
