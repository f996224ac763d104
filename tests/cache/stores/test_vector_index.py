"""The vectors in memory: right neighbours, bounded size, nothing that is gone."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cache.stores.rig import START, axis, between, entry, random_vectors
from trimodal.cache.stores import vector_index
from trimodal.cache.stores.vector_index import OVERHEAD, VectorIndex, VectorIndexes
from trimodal.cache.values import Entry

LATER = START + 100


class Shelf:
    """Answers by name, and how often and how many were asked for."""

    def __init__(self, names: Sequence[str]) -> None:
        self.entries = {name: entry(name) for name in names}
        self.asked: list[int] = []

    def __call__(self, names: Sequence[str]) -> Mapping[str, Entry]:
        self.asked.append(len(names))
        return {name: self.entries[name] for name in names if name in self.entries}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "drop"]), st.integers(0, 12), st.integers(0, 199), st.integers(0, 9)
        ),
        max_size=60,
    )
)
def test_it_is_a_table_by_name(steps: list[tuple[str, int, int, int]]) -> None:
    vectors = random_vectors(200)
    index, table = VectorIndex(16), {}
    for what, name, row, life in steps:
        if what == "add":
            index.add([str(name)], vectors[[row]], [START + life])
            table[str(name)] = (row, START + life)
        else:
            index.drop([str(name), "unknown"])
            table.pop(str(name), None)
    live = {name: vectors[row] @ vectors[0] for name, (row, expires) in table.items() if expires > START + 4}
    found = index.best(vectors[0], 100, START + 4)
    assert {name: pytest.approx(score, abs=1e-6) for score, name in found} == live
    assert [score for score, _ in found] == sorted((score for score, _ in found), reverse=True)
    assert len(index) == len(live)  # expired ones are forgotten


def test_beyond_its_limit_those_that_expire_first_are_left_out() -> None:
    index = VectorIndex(16, rows=100)
    for number, vector in enumerate(random_vectors(250)):
        index.add([str(number)], vector[None], [LATER + (number * 7) % 250])
    assert 90 <= len(index) <= 100
    assert index.nbytes <= OVERHEAD + 101 * (16 * 4 + 8 + 250)
    kept = {int(name) * 7 % 250 for _, name in index.best(axis(0), 100, START)}
    assert 249 in kept
    assert 0 not in kept


def test_many_at_once_beyond_the_limit() -> None:
    index = VectorIndex(16, rows=50)
    vectors = random_vectors(200)
    for turn, start in enumerate((0, 40, 80, 60, 20, 120)):
        names = [str(number) for number in range(start, start + 40)]
        index.add(names, vectors[start : start + 40], [LATER + turn] * 40)
        found = {int(name) for _, name in index.best(axis(0), 99, START)}
        assert set(range(start, start + 40)) <= found
        assert len(index) == len(found) <= 50
    for score, name in index.best(axis(0), 99, START):
        assert score == pytest.approx(vectors[int(name)][0], abs=1e-6)


def test_what_is_gone_is_forgotten_and_the_next_best_found() -> None:
    vectors = random_vectors(500)
    index, shelf = VectorIndex(16), Shelf([str(number) for number in range(0, 500, 50)])
    for number, vector in enumerate(vectors):
        index.add([str(number)], vector[None], [LATER])
    found = index.find(axis(0), 3, START, shelf)
    best = sorted(range(0, 500, 50), key=lambda row: -vectors[row][0])[:3]
    assert [kept.answer for _, kept in found] == [str(row) for row in best]
    assert len(shelf.asked) < 10  # in growing steps, not one by one
    shelf.asked.clear()
    assert index.find(axis(0), 3, START, shelf) == found
    assert len(shelf.asked) <= 3


def test_where_all_is_gone_the_search_ends_in_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_index, "FETCH", 64)
    index, shelf = VectorIndex(16), Shelf([])
    for number, vector in enumerate(random_vectors(500)):
        index.add([str(number)], vector[None], [LATER])
    assert index.find(axis(0), 4, START, shelf) == []
    assert len(index) == 0
    assert len(shelf.asked) < 20
    assert max(shelf.asked) == 64
    assert index.find(axis(0), 4, START, shelf) == []


def test_the_same_direction_is_1_at_most() -> None:
    index = VectorIndex(16)
    vector = between(0, 1, 0.9) * np.float32(1.004)  # of a length that is still taken for one
    index.add(["a"], vector[None], [LATER])
    assert index.best(vector, 1, START) == [(1.0, "a")]


def test_least_recently_used_indexes_make_room() -> None:
    full = VectorIndex(16)
    full.add(["a"], axis(0)[None], [LATER])
    indexes = VectorIndexes(limit=3 * full.nbytes)
    for scope in ("a", "b", "c", "a", "d"):
        with indexes.use(scope, 16) as index:
            index.add(["a"], axis(0)[None], [LATER])
    sizes = {}
    for scope in ("a", "c", "d", "b"):
        with indexes.use(scope, 16) as index:
            sizes[scope] = len(index)
    assert sizes == {"a": 1, "c": 1, "d": 1, "b": 0}


def test_empty_indexes_are_not_kept() -> None:
    indexes = VectorIndexes()
    for number in range(1_000):
        with indexes.use(str(number), 16):
            pass
    with indexes.use("a", 16) as index:
        index.add(["a"], axis(0)[None], [LATER])
    with indexes.use("a", 16) as index:
        index.drop(["a"])
    assert len(indexes) == 0


def test_an_empty_index_in_use_is_the_one_that_others_get() -> None:
    indexes = VectorIndexes()
    with indexes.use("a", 16) as index:
        index.lock = nullcontext()  # type: ignore[assignment]  # the other one is this thread, too
        with indexes.use("a", 16) as other:
            assert other is index


def test_a_place_in_use_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    indexes, done = VectorIndexes(), threading.Event()

    def other() -> None:
        with indexes.use("b", 16):
            done.set()

    with indexes.use("a", 16):
        thread = threading.Thread(target=other)
        thread.start()
        assert done.wait(20)
    thread.join(20)
