"""One contract for every store: what `Store` promises, whatever keeps the answers."""

import threading
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.cache.stores.redis_server import RedisServer
from tests.cache.stores.rig import Clock, axis, between, entry, random_vectors, scope
from trimodal.cache.stores.base import Limits, Owner, Store, StoreError
from trimodal.cache.stores.redis import RedisStore
from trimodal.cache.stores.sqlite import SqliteStore
from trimodal.cache.values import CacheScope, StoreStats

Make = Callable[..., Store]


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.kill()


@pytest.fixture(params=["embedded", "redis"])
def make(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Make]:
    """A function that opens an empty store of each kind, with `max_entries`."""
    opened: list[Store] = []
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        with server.client() as client:
            client.flushall()

    def make(max_entries: int = 1_000) -> Store:
        limits = Limits(max_entries, timeout_s=2.0)
        if request.param == "redis":
            opened.append(RedisStore(server.client(), limits, clock))
        else:
            opened.append(SqliteStore(tmp_path / f"{len(opened)}.sqlite", limits, clock))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(make: Make) -> Store:
    return make()


def test_gives_back_what_was_put(store: Store) -> None:
    kept = entry("naïve \0 𝄞 \u202e answer\n", text="", finish_reason="length", completion_tokens=0)
    store.put(scope(), "k", kept, None)
    assert store.get(scope(), "k") == kept
    assert store.get(scope(), "other") is None


def test_the_last_put_counts(store: Store) -> None:
    store.put(scope(), "k", entry("first"), axis(0))
    store.put(scope(), "k", entry("second"), axis(1))
    assert store.get(scope(), "k") == entry("second")
    assert store.nearest(scope(), axis(1), 4) == [(1.0, entry("second"))]
    assert store.stats().entries == 1


def test_nearest_is_by_cosine_best_first(store: Store) -> None:
    for number, cosine in enumerate((0.5, 0.9, 0.7)):
        store.put(scope(), f"k{number}", entry(f"{cosine}"), between(0, number + 1, cosine))
    found = store.nearest(scope(), axis(0), 2)
    assert [(round(score, 4), kept.answer) for score, kept in found] == [(0.9, "0.9"), (0.7, "0.7")]
    assert len(store.nearest(scope(), axis(0), 10)) == 3


def test_nearest_agrees_with_a_search_of_all(store: Store) -> None:
    vectors, asked = random_vectors(300), random_vectors(5, seed=1)
    for number, vector in enumerate(vectors):
        store.put(scope(), f"k{number}", entry(str(number)), vector)
        if number == 150:
            store.nearest(scope(), asked[0], 4)  # the rest must be found too
    for vector in asked:
        scores = vectors @ vector
        found = store.nearest(scope(), vector, 4)
        assert [kept.answer for _, kept in found] == [str(row) for row in np.argsort(-scores)[:4]]
        assert np.allclose([score for score, _ in found], np.sort(scores)[::-1][:4], atol=1e-5)


def test_without_a_vector_it_is_for_get_alone(store: Store) -> None:
    store.put(scope(), "a", entry("a"), None)
    store.put(scope(), "b", entry("with"), axis(0))
    store.nearest(scope(), axis(0), 1)
    store.put(scope(), "b", entry("without"), None)
    assert store.nearest(scope(), axis(0), 4) == []
    assert store.get(scope(), "b") == entry("without")


def test_nothing_is_found_across_scopes(store: Store) -> None:
    # Fields that run together, whatever separates them: "a" + "bc" and "ab" + "c".
    fields = [
        ("f" * 16, "0" * 16),
        ("", "a", "a:b", "*", "a\0b", "ã", "a\u0303"),
        ("n", "b:n"),
        ("1" * 64, "2" * 64),
    ]
    scopes = [CacheScope(*parts) for parts in product(*fields)]
    for where in scopes:
        store.put(where, "k", entry(repr(where)), axis(0))
    for where in scopes:
        assert store.get(where, "k") == entry(repr(where))
        assert store.nearest(where, axis(0), 4) == [(1.0, entry(repr(where)))]
    assert store.get(scope("f" * 16, "b"), "k") is None
    assert store.stats().tenants == 7


def test_an_answer_ends_when_its_time_is_over(store: Store, clock: Clock) -> None:
    store.put(scope(), "short", entry("short", ttl=1.5), axis(0))
    store.put(scope(), "long", entry("long", ttl=60), between(0, 1, 0.8))
    clock.now += 1.499
    assert store.get(scope(), "short") is not None
    assert [kept.answer for _, kept in store.nearest(scope(), axis(0), 4)] == ["short", "long"]
    clock.now += 0.001
    assert store.get(scope(), "short") is None
    assert [kept.answer for _, kept in store.nearest(scope(), axis(0), 4)] == ["long"]
    assert store.stats().entries == 1


def test_the_oldest_makes_room(make: Make, clock: Clock) -> None:
    store = make(3)
    for number in (1, 0, 1, 2, 3):  # 1 is stored anew after 0
        clock.now += 1
        store.put(scope(), f"k{number}", entry(f"{number}"), axis(number))
    assert [store.get(scope(), f"k{number}") is not None for number in range(4)] == [False, True, True, True]
    assert store.nearest(scope(), axis(0), 1)[0][0] == 0.0
    assert store.stats().entries == 3


def test_a_tenant_pushes_out_nobody_elses(make: Make, clock: Clock) -> None:
    store = make(10)
    for number in range(3):
        clock.now += 1
        store.put(scope(tenant="anna"), f"k{number}", entry(f"{number}"), axis(number))
    for number in range(40):
        clock.now += 1
        store.put(scope(tenant="bert"), f"b{number}", entry("b"), None)
    assert [store.get(scope(tenant="anna"), f"k{number}") is not None for number in range(3)] == [True] * 3
    assert store.stats() == StoreStats(10, 2)
    assert store.get(scope(tenant="bert"), "b39") is not None
    # What is stored anew, expires or is cleared leaves the counts right.
    store.put(scope(tenant="bert"), "b39", entry("again"), None)
    assert store.clear(Owner(tenant="bert")) == 7
    for number in range(8):
        clock.now += 1
        store.put(scope(tenant="anna"), f"new{number}", entry("n"), None)
    assert store.get(scope(tenant="anna"), "k0") is None
    assert store.get(scope(tenant="anna"), "k1") is not None


def test_expired_answers_make_room_first(make: Make, clock: Clock) -> None:
    store = make(2)
    store.put(scope(), "lasting", entry("lasting"), axis(0))
    clock.now += 1
    store.put(scope(), "brief", entry("brief", now=clock.now, ttl=1), axis(1))
    clock.now += 2
    store.put(scope(), "new", entry("new"), axis(2))
    assert store.get(scope(), "lasting") is not None
    assert store.get(scope(), "new") is not None


@pytest.mark.parametrize(
    ("chosen", "left"),
    [
        ({}, set()),
        ({"tenant": ""}, {"ax", "ay", "bx"}),
        ({"tenant": "a"}, {"x", "bx"}),
        ({"tenant": "a", "namespace": "x"}, {"x", "ay", "bx"}),
        ({"namespace": "x"}, {"ay"}),
        ({"fingerprint": "0" * 16}, {"x", "ax", "ay"}),
        ({"namespace": "a"}, {"x", "ax", "ay", "bx"}),
        ({"tenant": "x"}, {"x", "ax", "ay", "bx"}),
        ({"tenant": "*"}, {"x", "ax", "ay", "bx"}),
    ],
)
def test_clear_drops_what_matches(store: Store, chosen: dict[str, str], left: set[str]) -> None:
    scopes = {
        "x": scope(tenant="", namespace="x"),
        "ax": scope(tenant="a", namespace="x"),
        "ay": scope(tenant="a", namespace="y"),
        "bx": scope("0" * 16, tenant="b", namespace="x"),
    }
    for name, where in scopes.items():
        store.put(where, "k", entry(name), axis(0))
        store.nearest(where, axis(0), 1)
    assert store.clear(Owner(**chosen)) == 4 - len(left)
    assert {name for name, where in scopes.items() if store.get(where, "k")} == left
    assert {name for name, where in scopes.items() if store.nearest(where, axis(0), 1)} == left
    assert store.stats().entries == len(left)
    assert store.count() == len(left)
    store.put(scopes["ax"], "k", entry("again"), axis(0))
    assert store.nearest(scopes["ax"], axis(0), 1) == [(1.0, entry("again"))]


def test_clear_of_many(make: Make) -> None:
    store = make(3_000)
    vectors = random_vectors(2_400)
    for number, vector in enumerate(vectors):
        store.put(scope(tenant="ab"[number % 2]), f"k{number}", entry(), vector if number < 50 else None)
    store.nearest(scope(tenant="a"), vectors[0], 4)
    assert store.clear(Owner(tenant="a")) == 1_200
    assert store.nearest(scope(tenant="a"), vectors[0], 4) == []
    assert len(store.nearest(scope(tenant="b"), vectors[0], 4)) == 4


@pytest.mark.parametrize(
    "vector",
    [np.zeros(16), np.full(16, np.nan), np.full(16, np.inf), np.ones(16), np.zeros((1, 16)), np.zeros(0)],
    ids=["zero", "nan", "inf", "long", "matrix", "empty"],
)
def test_an_embedding_that_is_no_unit_vector_is_refused(store: Store, vector: np.ndarray) -> None:
    with pytest.raises(StoreError, match="unit length"):
        store.put(scope(), "k", entry(), vector.astype(np.float32))
    with pytest.raises(StoreError, match="unit length"):
        store.nearest(scope(), vector.astype(np.float32), 1)
    assert store.get(scope(), "k") is None


def test_vectors_of_another_length_are_not_compared(store: Store) -> None:
    store.put(scope(), "a", entry("16"), axis(0))
    store.put(scope(), "b", entry("8"), axis(0, 8))
    assert store.nearest(scope(), axis(0, 8), 4) == [(1.0, entry("8"))]
    assert store.nearest(scope(), axis(0), 4) == [(1.0, entry("16"))]


def test_many_threads(make: Make) -> None:
    store = make(200)
    failures: list[BaseException] = []
    vectors = random_vectors(50)

    def work(number: int) -> None:
        try:
            where = scope(tenant=str(number % 2))
            for key in range(50):
                name = f"{number}-{key}"
                store.put(where, name, entry(name), vectors[key])
                found = store.get(where, name)
                assert found is None or found.answer == name
                assert all(kept.answer for _, kept in store.nearest(where, vectors[key], 4))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    # Where counting and removing are two calls, each writer may remove one too many.
    assert 200 - len(threads) <= store.stats().entries <= 200
