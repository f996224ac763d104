"""`python -m trimodal.bench.cache.stores`: times get, put and nearest in each store, by its size.

One place, one caller, vectors of the demo's dimension, a warm index, loopback only. A store that is not
here, as Redis without a server, is left out and named.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from trimodal.bench.common.closed_loop import milliseconds
from trimodal.cache.stores.base import Limits, Owner, Store, StoreError, open_store
from trimodal.cache.values import Entry, Place
from trimodal.errors import OperatorError
from trimodal.report.console import make_table

SIZES = (1_000, 10_000, 50_000)
DIMENSION = 384
CALLS = 200
LIMITS = Limits(max_entries=1_000_000, timeout_s=10.0)
# A fingerprint that no model has: clearing it touches no real answers.
PLACE = Place("bench cache_stores", "bench", "bench", "bench")


def measure(
    urls: dict[str, str], sizes: tuple[int, ...], calls: int, console: Console
) -> list[dict[str, Any]]:
    """Fills each store to each size in turn; milliseconds by store, size and call. Clears what it wrote."""
    figures: list[dict[str, Any]] = []
    for name, url in urls.items():
        try:
            with closing(open_store(url, LIMITS)) as store:
                try:
                    for row in _rows(store, sizes, calls):
                        figures.append({"store": name, **row})
                        console.print(_sentence(figures[-1]))
                finally:
                    with suppress(StoreError):  # it is down: why is told already
                        store.clear(Owner(PLACE.fingerprint))
        except (OperatorError, StoreError) as error:
            console.print(f"{name}: {error}")
    return figures


def table(figures: list[dict[str, Any]]) -> Table:
    """Median and 95th percentile of each call, milliseconds."""
    shown = make_table("ms", "store|entries|get p50|p95|nearest p50|p95|put p50|p95")
    for row in figures:
        keys = (f"{call}_p{percent}_ms" for call in ("get", "nearest", "put") for percent in (50, 95))
        cells = (f"{row[key]:.2f}" for key in keys)
        shown.add_row(row["store"], f"{row['entries']:,}", *cells)
    return shown


def _rows(store: Store, sizes: tuple[int, ...], calls: int) -> Iterator[dict[str, Any]]:
    store.clear(Owner(PLACE.fingerprint))
    filled = 0
    for size in sizes:
        started = time.perf_counter()
        for number in range(filled, size):
            store.put(PLACE, f"key {number}", _entry(number), _vector(number))
        filled, full = size, time.perf_counter()
        store.nearest(PLACE, _vector(0), 1)
        row = {"entries": size, "fill_s": full - started, "warm_ms": 1e3 * (time.perf_counter() - full)}
        yield {**row, **_times(store, size, calls)}


def _times(store: Store, size: int, calls: int) -> dict[str, float]:
    chosen = np.random.default_rng(1).integers(0, size, calls).tolist()
    entries, vectors = [_entry(number) for number in chosen], [_vector(number) for number in chosen]
    # A neighbour's vector, not a stored one: what a paraphrase asks with.
    near = [_unit(vectors[turn] + 0.3 * _vector(number + 1_000_003)) for turn, number in enumerate(chosen)]
    works: dict[str, Callable[[int], object]] = {
        "get": lambda turn: store.get(PLACE, f"key {chosen[turn]}"),
        "nearest": lambda turn: store.nearest(PLACE, near[turn], 4),
        "put": lambda turn: store.put(PLACE, f"key {chosen[turn]}", entries[turn], vectors[turn]),
    }
    figures = {}
    for call, work in works.items():
        latencies = []
        for turn in range(calls):
            started = time.perf_counter()
            result = work(turn)
            latencies.append(time.perf_counter() - started)
            assert call == "put" or result, f"{call} found nothing"
        for percent in (50, 95):
            figures[f"{call}_p{percent}_ms"] = milliseconds(latencies, percent)
    return figures


def _entry(number: int) -> Entry:
    now = time.time()
    return Entry(f"question {number}", "an answer of some length. " * 20, "stop", 100, 256, now, now + 86_400)


def _vector(number: int) -> Any:
    return _unit(np.random.default_rng(number).standard_normal(DIMENSION).astype(np.float32))


def _unit(vector: Any) -> Any:
    return vector / np.linalg.norm(vector)


def _sentence(row: dict[str, Any]) -> str:
    return (
        f"{row['store']}, {row['entries']:,} entries: get {row['get_p50_ms']:.2f} ms, nearest "
        f"{row['nearest_p50_ms']:.2f}, put {row['put_p50_ms']:.2f} (medians); "
        f"filled in {row['fill_s']:.1f} s, first search {row['warm_ms']:.0f} ms"
    )


def _named(text: str) -> tuple[str, str]:
    name, equals, url = text.partition("=")
    if not (name and equals and url):
        # Not repeated: it may be a URL with a password.
        raise argparse.ArgumentTypeError("NAME=URL is needed, as redis=redis://localhost:6379/0")
    return name, url


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number of at least 1 is needed")
    return int(text)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m trimodal.bench.cache.stores", description=__doc__)
    parser.add_argument(
        "--store", type=_named, action="append", default=[], metavar="NAME=URL", help="one more, as redis=…"
    )
    parser.add_argument("--sizes", type=_positive, nargs="+", default=list(SIZES))
    parser.add_argument("--calls", type=_positive, default=CALLS)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    console = Console(stderr=chosen.json)
    with tempfile.TemporaryDirectory() as folder:
        urls = {"memory": "memory:", "embedded": str(Path(folder) / "answers.sqlite")}
        urls.update(chosen.store)
        figures = measure(urls, tuple(sorted(chosen.sizes)), chosen.calls, console)
    if chosen.json:
        json.dump(figures, sys.stdout, indent=2)
    else:
        console.print(table(figures))
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:  # what was put is cleared by now
        raise SystemExit(130) from None
