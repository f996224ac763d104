"""Makes the table "Cache hits": what a stored answer takes through Triton, beside the embedding alone.

    python -m benchmarks.cache.hits

Requests come one after the other, the ways in turns, to a fake engine that would answer in milliseconds. The
embedding and the judge are those that are served. Each question has an answer stored for another wording.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from benchmarks.common import run_command, serving
from benchmarks.tables import NARROW, make_table
from trimodal.build_support import operator_errors
from trimodal.client import Client
from trimodal.errors import ServerError
from trimodal.server.options import ServerOptions

# Stored, and what gets the same answer.
QUESTIONS = (
    ("How do I reset my password?", "Could you tell me how I can reset my password?"),
    ("What is the capital of Norway?", "Could you tell me the capital of Norway?"),
    ("How can I cancel my subscription?", "How would I go about cancelling my subscription?"),
    ("Where can I find my invoices?", "Please tell me where I can find my invoices"),
    ("How do I change the language of the app?", "How can the language of the app be changed?"),
    ("Is breakfast included in the price?", "Does the price include breakfast?"),
)
BUDGET_MS = "2000"  # what is slow shall be seen, not passed by
SETTINGS = {
    "engine": "fake",
    "fake_step_ms": "1",
    "fake_answer": "One answer. ",
    "cache": "semantic",
    "cache_budget_ms": BUDGET_MS,
    "cache_embedding_budget_ms": BUDGET_MS,
    "cache_judge_budget_ms": BUDGET_MS,
}
Way = Callable[[], Awaitable[None]]


async def ask(client: Client, text: str) -> str:
    """The kind of hit that a question gets; it is not stored, so the next time it gets the same."""
    # A cut answer would serve this very question alone.
    return (await client.complete(text, max_tokens=24, stop=".", cache_control="no-store")).note.cache


async def stored(client: Client) -> list[tuple[str, str]]:
    """Stores the answers; the questions whose other wording is a hit. Raises: ServerError: none is."""
    for one, _ in QUESTIONS:
        await client.complete(one, max_tokens=24, stop=".")
    await asyncio.sleep(1.0)  # they are stored behind the requests' backs
    found = [pair for pair in QUESTIONS if await ask(client, pair[1]) == "semantic"]
    if not found:
        raise ServerError("no other wording is a hit")
    return found


async def measured(client: Client, pairs: list[tuple[str, str]], requests: int) -> dict[str, list[float]]:
    """Milliseconds of each way's requests."""
    rng = random.Random(0)
    took: dict[str, list[float]] = {
        "bare round trip": [],
        "exact hit": [],
        "embedding": [],
        "semantic hit": [],
    }

    async def hit(text: str, kind: str) -> None:
        if (found := await ask(client, text)) != kind:
            raise ServerError(f"{text!r}: {found or 'no'} hit instead of {kind}")

    async def embed(text: str) -> None:
        await client.embeddings([text])

    for _ in range(requests):
        one, other = rng.choice(pairs)
        ways: tuple[tuple[str, Way], ...] = (
            ("bare round trip", lambda: _ready(client)),
            ("exact hit", lambda one=one: hit(one, "exact")),  # type: ignore[misc]
            ("embedding", lambda other=other: embed(other)),  # type: ignore[misc]
            ("semantic hit", lambda other=other: hit(other, "semantic")),  # type: ignore[misc]
        )
        for name, way in ways:
            began = time.perf_counter()
            await way()
            took[name].append(1e3 * (time.perf_counter() - began))
    return took


async def _ready(client: Client) -> None:
    await client.ready("llm")


def main(requests: Annotated[int, typer.Option(min=10, help="of each way")] = 400) -> None:
    """Ask in each way in turn."""

    async def run_all() -> dict[str, list[float]]:
        with tempfile.TemporaryDirectory(prefix="trimodal-bench-") as folder:
            changes = {"llm": {**SETTINGS, "cache_store": str(Path(folder) / "answers.sqlite")}}
            options = ServerOptions.on_free_ports("llm", "embedding", "judge", changes=changes)
            async with serving(options) as (_, client):
                pairs = await stored(client)
                await measured(client, pairs, 20)
                return await measured(client, pairs, requests)

    with operator_errors():
        took = asyncio.run(run_all())
    table = make_table(
        f"Cache hits, {requests} requests a way (ms)", "way|p50|p95|above the embedding", **NARROW
    )
    base = np.quantile(took["embedding"], (0.5, 0.95))
    for name, values in took.items():
        figures = np.quantile(values, (0.5, 0.95))
        above = " ".join(f"{value:+.2f}" for value in figures - base) if name == "semantic hit" else ""
        table.add_row(name, *(f"{value:.2f}" for value in figures), above)
    Console(highlight=False, width=100).print(table)


if __name__ == "__main__":
    run_command(main)
