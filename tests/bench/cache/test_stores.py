"""The bench of stores: every call finds what was put, figures for each store, a store that is not there."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from trimodal.bench.cache import stores
from trimodal.cache.stores.base import open_store


def test_figures_of_each_store_and_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "more.sqlite"
    arguments = ["--store", f"more={path}", "--sizes", "30", "10", "--calls", "5", "--json"]
    assert stores.main(arguments) == 0
    said = capsys.readouterr()
    figures = json.loads(said.out)
    assert [(row["store"], row["entries"]) for row in figures] == [
        (store, size) for store in ("memory", "embedded", "more") for size in (10, 30)
    ]
    for row in figures:
        assert all(row[f"{call}_p50_ms"] <= row[f"{call}_p95_ms"] for call in ("get", "nearest", "put"))
        assert row["nearest_p50_ms"] > 0
    store = open_store(str(path), stores.LIMITS)
    assert store.stats().entries == 0  # it leaves nothing behind
    store.close()


def test_a_store_that_is_not_there_is_named() -> None:
    console = Console(record=True, width=200, file=io.StringIO())
    urls = {"lost": "redis://127.0.0.1:1/0", "wrong": "mailto:someone", "memory": "memory:"}
    figures = stores.measure(urls, (5,), 3, console)
    assert [row["store"] for row in figures] == ["memory"]
    said = console.export_text()
    assert "lost: Redis" in said
    assert "wrong: cache_store" in said
    assert stores.table(figures).row_count == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--store", "redis://:secret@host"], "--store: NAME=URL is needed"),
        (["--store", "=redis://host"], "--store: NAME=URL is needed"),
        (["--sizes", "0"], "--sizes: '0': a whole number of at least 1 is needed"),
        (["--calls", "-1"], "--calls: '-1': a whole number of at least 1 is needed"),
        (["--calls", "many"], "--calls: 'many': a whole number of at least 1 is needed"),
    ],
)
def test_wrong_options_are_one_sentence(arguments, sentence, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        stores.main(arguments)
    said = capsys.readouterr().err
    assert sentence in said
    assert "secret" not in said


def test_answers_of_a_tenant_called_as_the_bench_stay(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "live.sqlite"), stores.LIMITS)
    place = replace(stores.PLACE, fingerprint="0123456789abcdef")
    store.put(place, "key", stores._entry(1), None)
    stores.measure({"live": str(tmp_path / "live.sqlite")}, (5,), 2, Console(file=io.StringIO()))
    assert store.get(place, "key") is not None
    assert store.stats().entries == 1
    store.close()
