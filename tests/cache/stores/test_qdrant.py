"""The Qdrant store over HTTP against a stand-in, and its payloads in the client's local mode."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders.scripts import Later
from tests.cache.stores.qdrant_local import local_client
from tests.cache.stores.rig import Clock, axis, between, entry, scope
from trimodal.cache.stores.base import Limits, Owner, StoreError, open_store
from trimodal.cache.stores.codec import scope_name
from trimodal.errors import OperatorError

if TYPE_CHECKING:
    from tests.cache.stores.qdrant_stand_in import StandIn
    from trimodal.cache.stores.qdrant import QdrantStore

# Qdrant's client takes seconds to import.
qdrant, schema = Later("trimodal.cache.stores.qdrant"), Later("trimodal.cache.stores.qdrant_schema")
stand_in = Later("tests.cache.stores.qdrant_stand_in")

LIMITS = Limits(1_000, timeout_s=10.0)


@pytest.fixture
def server() -> Iterator[StandIn]:
    server = stand_in.StandIn()
    yield server
    server.close()


def opened(
    server: StandIn, path: str = "", limits: Limits = LIMITS, clock: Clock | None = None
) -> QdrantStore:
    store = open_store(server.url + path, limits)
    assert isinstance(store, qdrant.QdrantStore)
    store._clock = clock or Clock()
    return store


def calls(store: QdrantStore) -> list[Callable[[], Any]]:
    return [
        lambda: store.get(scope(), "k"),
        lambda: store.nearest(scope(), axis(0), 4),
        lambda: store.put(scope(), "k", entry(), axis(0)),
        lambda: store.clear(Owner()),
        store.stats,
        store.count,
    ]


def test_a_round_over_http(server: StandIn) -> None:
    clock = Clock()
    store, other = opened(server, clock=clock), opened(server, clock=clock)
    assert store.get(scope(), "k") is None
    assert store.nearest(scope(), axis(0), 4) == []
    assert (store.clear(Owner()), store.stats().entries) == (0, 0)
    store.put(scope(), "a", entry("a"), axis(0))
    store.put(scope(tenant="t"), "b", entry("b", ttl=5), axis(1))
    store.put(scope(), "c", entry("c"), None)
    assert other.get(scope(), "a") == entry("a")
    assert other.nearest(scope(), between(0, 1, 0.8), 4) == [(pytest.approx(0.8, abs=1e-5), entry("a"))]
    assert (other.stats().entries, other.stats().tenants) == (3, 2)
    other.put(scope(), "d", entry("d"), axis(2))  # with the use of "a"
    clock.now += 6
    assert store.get(scope(tenant="t"), "b") is None
    assert store.stats().entries == 3
    assert other.clear(Owner(tenant="")) == 3
    assert store.nearest(scope(), axis(0), 4) == []
    store.close()
    other.close()


def test_collections_and_their_names(server: StandIn) -> None:
    for path, name in (("", "trimodal"), ("/", "trimodal"), ("/answers-2", "answers-2")):
        store = opened(server, path)
        store.put(scope(), "k", entry(), axis(0))
        store.close()
        names = {one.name for one in server.local.get_collections().collections}
        assert {name, f"{name}_vectors_16"} <= names
    indexes = [path for method, path, _ in server.calls if path.endswith("/index")]
    assert len(indexes) == 2 * (len(("fingerprint", "tenant", "namespace", "expires_at", "used_at")) + 5)


def test_clear_leaves_other_collections(server: StandIn) -> None:
    mine, other = opened(server, "/mine"), opened(server, "/mine_vectors")
    for store in (mine, other):
        store.put(scope(), "k", entry(), axis(0))
    assert mine.clear(Owner()) == 1
    assert other.nearest(scope(), axis(0), 1) == [(1.0, entry())]
    mine.close()
    other.close()


def test_two_servers_make_the_collection_at_once(server: StandIn) -> None:
    barrier, failures = threading.Barrier(4), []

    def work(number: int) -> None:
        store = opened(server)
        barrier.wait(20)
        try:
            store.put(scope(), f"k{number}", entry(str(number)), axis(number))
        except StoreError as error:
            failures.append(error)
        store.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failures
    store = opened(server)
    assert [store.get(scope(), f"k{number}") for number in range(4)] == [entry(str(n)) for n in range(4)]
    store.close()


def test_a_collection_that_was_dropped_is_made_again(server: StandIn) -> None:
    store = opened(server)
    store.put(scope(), "k", entry(), axis(0))
    for name in ("trimodal", "trimodal_vectors_16"):
        server.local.delete_collection(name)
    assert store.get(scope(), "k") is None
    assert store.nearest(scope(), axis(0), 1) == []
    store.put(scope(), "k", entry("new"), axis(0))
    assert store.nearest(scope(), axis(0), 1) == [(1.0, entry("new"))]
    store.close()


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (500, b'{"status": {"error": "s3cret\\n"}}'),
        (401, b"Must provide an API key"),
        (429, b""),
        (503, b"<html>"),
        (200, b""),
        (200, b"not JSON"),
        (200, b"[]"),
        (200, b'{"result": "what?", "status": "ok", "time": 0}'),
        (200, b'{"result": null, "status": "ok", "time": 0}'),
        (302, b""),
    ],
)
def test_what_a_server_may_say_is_a_store_error(server: StandIn, status: int, content: bytes) -> None:
    store = opened(server)
    store.put(scope(), "k", entry(), axis(0))
    server.fault = lambda method, path: (status, content)
    for call in calls(store):
        with pytest.raises(StoreError, match="Qdrant") as caught:
            call()
        assert "s3cret" not in str(caught.value)
        assert "\n" not in str(caught.value)
    server.fault = lambda method, path: None
    assert store.get(scope(), "k") == entry()
    store.close()


@pytest.mark.slow
def test_a_slow_server_is_not_waited_for(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qdrant, "WRITE_WAIT_S", 0.05)
    store = opened(server, limits=Limits(1_000, timeout_s=0.05))
    server.delay_s = 60.0  # far beyond the test's own limit
    for call in calls(store):
        with pytest.raises(StoreError, match="[Tt]imeout|timed out"):
            call()
    store.close()


def test_nothing_at_the_address() -> None:
    store = open_store("qdrant+http://127.0.0.1:1", LIMITS)
    for call in calls(store):  # type: ignore[arg-type]
        with pytest.raises(StoreError, match="refused"):
            call()
    store.close()


def test_a_key_is_sent_and_never_told(server: StandIn) -> None:
    store = open_store(server.url.replace("//", "//s3cret@"), LIMITS)
    store.put(scope(), "k", entry(now=time.time()), None)
    assert {headers["api-key"] for _, _, headers in server.calls} == {"s3cret"}
    server.fault = lambda method, path: (403, b"no")
    with pytest.raises(StoreError) as caught:
        store.get(scope(), "k")
    assert "s3cret" not in str(caught.value)
    store.close()


@pytest.mark.parametrize(
    "rest",
    [
        "//",
        "//:6333",
        "//k3y@host:port",
        "//k3y@host:70000",
        "//host/a/b",
        "//host/..",
        "//host/a?b=c",
        "//[host",
        "",
    ],
)
def test_a_bad_url_is_told(rest: str) -> None:
    with pytest.raises(OperatorError, match="is the form") as caught:
        open_store(f"qdrant+http:{rest}", LIMITS)
    assert "k3y" not in str(caught.value)


def test_addresses() -> None:
    for url, uri in (
        ("qdrant+http://host", "http://host:6333"),
        ("qdrant+https://key@host:443/name", "https://host:443"),
        ("qdrant+http://[::1]:7000/name", "http://[::1]:7000"),
    ):
        (client,), _ = schema.connect(url, (1.0,))
        assert client._client.rest_uri.rstrip("/") == uri
        client.close()


def poisoned(**payload: object) -> QdrantStore:
    """A store in which the payload of the answer "k" was changed."""
    local = local_client()
    store = qdrant.QdrantStore(local, local, "trimodal", LIMITS, Clock())
    store.put(scope(), "k", entry(), axis(0))
    store.put(scope(), "k2", entry("2"), between(0, 1, 0.5))
    local.set_payload("trimodal", payload, [schema.point_id(scope_name(scope()), "k")])
    return store


@pytest.mark.parametrize(
    "packed",
    [None, 7, ["x"], {}, "", "no base 64!", base64.b64encode(b"garbage").decode(), "ä" * 20],
    ids=repr,
)
def test_a_poisoned_value_is_a_miss_and_dropped(packed: object) -> None:
    for call in ("get", "nearest"):
        store = poisoned(packed=packed)
        if call == "get":
            assert store.get(scope(), "k") is None
        else:
            assert [kept.answer for _, kept in store.nearest(scope(), axis(0), 4)] == ["2"]
        assert store.stats().entries == 1
        store.put(scope(), "k", entry("again"), axis(0))
        assert store.get(scope(), "k") == entry("again")


def test_another_scopes_value_is_a_miss() -> None:
    local = local_client()
    store = qdrant.QdrantStore(local, local, "trimodal", LIMITS, Clock())
    store.put(scope(tenant="a"), "k", entry("of a"), axis(0))
    (point,), _ = local.scroll("trimodal", with_payload=True)
    store.put(scope(tenant="b"), "k", entry("of b"), axis(0))
    ours = schema.point_id(scope_name(scope(tenant="b")), "k")
    local.set_payload("trimodal", {"packed": point.payload["packed"]}, [ours])
    assert store.get(scope(tenant="b"), "k") is None
    assert store.get(scope(tenant="a"), "k") == entry("of a")


def test_wrong_kinds_in_other_fields_do_no_harm() -> None:
    store = poisoned(size="big", tenant=7, searched="yes")
    assert [kept.answer for _, kept in store.nearest(scope(), axis(0), 4)] == ["2"]
    assert store.get(scope(), "k") == entry()
    assert store.stats().entries == 2


def test_a_filter_always_has_a_condition() -> None:
    assert len(schema.owned_by(Owner()).must) == 1
    assert len(schema.owned_by(Owner(tenant="")).must) == 2


def test_expired_answers_are_swept() -> None:
    local, clock = local_client(), Clock()
    store = qdrant.QdrantStore(local, local, "trimodal", LIMITS, clock)
    store.put(scope(), "k", entry(ttl=10), axis(0))
    clock.now += 30
    store.put(scope(), "k2", entry(now=clock.now), axis(1))
    assert local.count("trimodal").count == 2
    clock.now += 40
    store.put(scope(), "k3", entry(now=clock.now), axis(1))
    assert local.count("trimodal").count == 2
    assert local.count("trimodal_vectors_16").count == 2
