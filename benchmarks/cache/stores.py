"""Makes the table "Cache stores": times get, put and nearest in each store, by its size.

    python -m benchmarks.cache.stores --store redis=redis://127.0.0.1:6379/0

One scope, one caller, vectors of MiniLM's dimension, a warm index, loopback only. A store that is not here,
as Redis without a server, is left out and named.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from benchmarks.common import run_command
from benchmarks.tables import make_table
from trimodal.cache.stores.base import Limits, Owner, Store, StoreError, open_store
from trimodal.cache.values import CacheScope, Entry
from trimodal.client.timing import percentile
from trimodal.errors import OperatorError

DIMENSION = 384
LIMITS = Limits(max_entries=1_000_000, timeout_s=10.0)
# A fingerprint that no model has: clearing it touches no real answers.
SCOPE = CacheScope("benchmark of stores", "bench", "bench", "bench")


def rows(url: str, sizes: list[int], calls: int) -> Iterator[list[str]]:
    """Fills the store to each size in turn; p50 and p95 of each call, ms. Clears what it wrote."""
    with closing(open_store(url, LIMITS)) as store:
        try:
            store.clear(Owner(SCOPE.fingerprint))
            filled = 0
            for size in sorted(sizes):
                for number in range(filled, size):
                    store.put(SCOPE, f"key {number}", entry(number), vector(number))
                filled = size
                store.nearest(SCOPE, vector(0), 1)  # warms its index up
                yield [f"{size:,}", *(f"{value:.2f}" for value in times(store, size, calls))]
        finally:
            with suppress(StoreError):  # it is down: why was said already
                store.clear(Owner(SCOPE.fingerprint))


def times(store: Store, size: int, calls: int) -> Iterator[float]:
    chosen = np.random.default_rng(1).integers(0, size, calls).tolist()
    entries, vectors = [entry(number) for number in chosen], [vector(number) for number in chosen]
    # A neighbour's vector, not a stored one: what a paraphrase asks with.
    near = [unit(vectors[turn] + 0.3 * vector(number + 1_000_003)) for turn, number in enumerate(chosen)]
    works: dict[str, Callable[[int], object]] = {
        "get": lambda turn: store.get(SCOPE, f"key {chosen[turn]}"),
        "nearest": lambda turn: store.nearest(SCOPE, near[turn], 4),
        "put": lambda turn: store.put(SCOPE, f"key {chosen[turn]}", entries[turn], vectors[turn]),
    }
    for call, work in works.items():
        latencies = []
        for turn in range(calls):
            began = time.perf_counter()
            result = work(turn)
            latencies.append(time.perf_counter() - began)
            assert call == "put" or result, f"{call} found nothing"
        yield from (1e3 * (percentile(latencies, percent) or 0.0) for percent in (50, 95))


def entry(number: int) -> Entry:
    now = time.time()
    return Entry(f"question {number}", "an answer of some length. " * 20, "stop", 100, 256, now, now + 86_400)


def vector(number: int) -> Any:
    return unit(np.random.default_rng(number).standard_normal(DIMENSION).astype(np.float32))


def unit(values: Any) -> Any:
    return values / np.linalg.norm(values)


def main(
    store: Annotated[list[str], typer.Option(metavar="NAME=URL", help="one more; repeatable")] = [],  # noqa: B006
    size: Annotated[list[int], typer.Option(min=1, help="repeatable")] = [1_000, 10_000, 50_000],  # noqa: B006
    calls: Annotated[int, typer.Option(min=1)] = 200,
) -> None:
    """Times the calls of each store."""
    console = Console()
    table = make_table("ms", "store|entries|get p50|p95|nearest p50|p95|put p50|p95")
    with tempfile.TemporaryDirectory() as folder:
        urls = {"embedded": str(Path(folder) / "answers.sqlite")}
        for text in store:
            name, equals, url = text.partition("=")
            if not (name and equals and url):  # not repeated: it may be a URL with a password
                raise typer.BadParameter("NAME=URL is needed, as redis=redis://127.0.0.1:6379/0")
            urls[name] = url
        for name, url in urls.items():
            try:
                for row in rows(url, size, calls):
                    table.add_row(name, *row)
            except (OperatorError, StoreError) as error:
                console.print(f"{name}: {error}")
    console.print(table)


if __name__ == "__main__":
    run_command(main)
