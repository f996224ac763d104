"""The Redis store against a real server: lost, slow, full, and poisoned ones."""

import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from tests.cache.stores.redis_server import RedisServer
from tests.cache.stores.rig import Clock, axis, between, calls, entry, random_vectors, scope
from tests.doubles.waiting import wait_until
from trimodal.cache.stores import redis as store_redis
from trimodal.cache.stores.base import Limits, Owner, StoreError, open_store
from trimodal.cache.stores.redis import Names, RedisStore
from trimodal.errors import OperatorError

LIMITS = Limits(1_000, timeout_s=5.0)
NAMES = Names.of(scope())
VECTORS = f"{NAMES.vectors}16"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.kill()


@pytest.fixture
def raw(shared: RedisServer) -> Iterator[redis.Redis]:
    """Another program's connection to an empty server."""
    with shared.client() as client:
        client.flushall()
        client.config_set("maxmemory", 0)
        yield client


@pytest.fixture
def store(shared: RedisServer, raw: redis.Redis) -> Iterator[RedisStore]:
    store = opened(shared)
    yield store
    store.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that the test may kill."""
    server = RedisServer(tmp_path)
    yield server
    server.kill()


def opened(server: RedisServer, limits: Limits = LIMITS, clock: Clock | None = None) -> RedisStore:
    store = open_store(server.url, limits)
    assert isinstance(store, RedisStore)
    store._clock = clock or Clock()
    return store


def test_two_servers_share_their_answers(shared: RedisServer, store: RedisStore) -> None:
    other = opened(shared)
    assert other.nearest(scope(), axis(0), 4) == []
    for number in range(5):
        store.put(scope(), f"k{number}", entry(f"{number}"), axis(number))
        assert other.nearest(scope(), axis(number), 1) == [(1.0, entry(f"{number}"))]
    assert other.get(scope(), "k4") == entry("4")
    assert other.clear(Owner()) == 5
    assert store.nearest(scope(), axis(0), 4) == []
    other.put(scope(), "k", entry("after"), axis(0))
    assert store.nearest(scope(), axis(0), 4) == [(1.0, entry("after"))]
    other.close()


def test_the_server_ends_answers_too(store: RedisStore, raw: redis.Redis) -> None:
    store.put(scope(), "k", entry(ttl=100), axis(0))
    for name in (f"{NAMES.answer}k", VECTORS):
        assert 99_000 < raw.pttl(name) <= 100_000
    store.put(scope(), "long", entry(ttl=200), axis(1))
    store.put(scope(), "short", entry(ttl=50), axis(1))
    assert 199_000 < raw.pttl(VECTORS) <= 200_000
    store.put(scope(), "k", entry(ttl=-1), axis(0))
    assert store.get(scope(), "k") is None
    assert raw.exists(f"{NAMES.answer}k") == 0


def test_what_the_server_evicted_is_gone(store: RedisStore, raw: redis.Redis) -> None:
    for number in range(4):
        store.put(scope(), f"k{number}", entry(f"{number}"), between(0, 1, 0.9 - number / 10))
    store.nearest(scope(), axis(0), 4)
    raw.delete(f"{NAMES.answer}k0")
    assert [kept.answer for _, kept in store.nearest(scope(), axis(0), 4)] == ["1", "2", "3"]
    raw.delete(VECTORS)
    assert store.nearest(scope(), axis(0), 4) == []
    assert store.get(scope(), "k1") is not None


def test_where_the_server_evicted_the_counts_the_oldest_of_all_go(
    shared: RedisServer, store: RedisStore, raw: redis.Redis
) -> None:
    clock = Clock()
    store._clock = clock
    for number in range(3):
        clock.now += 1
        store.put(scope(tenant=str(number)), "k", entry(f"{number}"), None)
    raw.delete("trimodal:counts")
    smaller = opened(shared, Limits(2, timeout_s=5.0), clock)
    smaller.put(scope(tenant="2"), "k", entry("again"), None)
    held = [store.get(scope(tenant=str(number)), "k") for number in range(3)]
    assert [one and one.answer for one in held] == [None, "1", "again"]
    smaller.close()


def test_where_the_server_evicted_whose_answers_they_are_the_oldest_go(
    shared: RedisServer, raw: redis.Redis
) -> None:
    clock = Clock()
    with closing(opened(shared, Limits(3, timeout_s=5.0), clock)) as store:
        for number in range(4):
            clock.now += 1
            if number == 3:
                raw.delete(*raw.keys("trimodal:stored:*"))
            store.put(scope(), f"k{number}", entry(f"{number}"), None)
        assert store.get(scope(), "k0") is None
        assert store.get(scope(), "k3") == entry("3")


def test_names_hold_nothing_of_a_client(store: RedisStore, raw: redis.Redis) -> None:
    where = scope(tenant="Tenant", namespace="Namespace")
    store.put(where, "k", entry(), axis(0))
    names = raw.keys("*")
    assert len(names) == 6
    assert all(name.startswith(b"trimodal:") for name in names)
    assert not any(b"enant" in name or b"amespace" in name for name in names)


def test_keys_of_others_are_left_alone(store: RedisStore, raw: redis.Redis) -> None:
    raw.set("mine", "1")
    raw.set("trimodal", "2")
    for number in range(700):
        store.put(scope(), f"k{number}", entry(), axis(0))
    assert store.clear(Owner()) == 700
    assert set(raw.keys("*")) == {b"mine", b"trimodal"}


@pytest.mark.parametrize("poison", [b"", b"garbage", b"1" + b"\x80\x04." * 9, b"\xff" * 5_000])
def test_a_poisoned_value_is_a_miss_and_dropped(store: RedisStore, raw: redis.Redis, poison: bytes) -> None:
    for number in range(2):
        store.put(scope(), f"k{number}", entry(f"{number}"), between(0, 1, 0.9 - number / 10))
    raw.set(f"{NAMES.answer}k0", poison)
    assert [kept.answer for _, kept in store.nearest(scope(), axis(0), 4)] == ["1"]
    raw.set(f"{NAMES.answer}k0", poison)
    assert store.get(scope(), "k0") is None
    assert raw.strlen(f"{NAMES.answer}k0") == 0
    store.put(scope(), "k0", entry("again"), axis(0))
    assert store.get(scope(), "k0") == entry("again")


def test_a_huge_value_is_cut_and_dropped(
    store: RedisStore, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_redis, "VALUE_BYTES", 10_000)
    raw.setrange(f"{NAMES.answer}k", 50_000_000, b"x")
    assert store.get(scope(), "k") is None
    assert raw.exists(f"{NAMES.answer}k") == 0


def test_a_poisoned_stream_gives_only_what_is_right(store: RedisStore, raw: redis.Redis) -> None:
    good = axis(0).tobytes()
    for fields in (
        {"x": "y"},
        {"k": "k", "v": "short", "e": "9e9"},
        {"k": "k", "v": struct.pack("<16f", *[float("nan")] * 16), "e": "9e9"},
        {"k": "k", "v": good, "e": "soon"},
        {"k": "k", "v": good, "e": "nan"},
        {"k": b"\xff\xfe", "v": good, "e": "9e9"},
        {"k": "not an answer", "v": good, "e": "9e9"},
        {"k": "*", "v": good, "e": "9e9"},
    ):
        raw.xadd(VECTORS, fields)
    store.put(scope(), "k", entry(), axis(1))
    assert store.nearest(scope(), axis(0), 4) == [(0.0, entry())]


def test_a_stream_that_began_anew_is_read_from_its_start(store: RedisStore, raw: redis.Redis) -> None:
    store.put(scope(), "k", entry(), axis(0))
    assert store.nearest(scope(), axis(1), 4) == [(0.0, entry())]
    raw.delete(VECTORS)
    # As after a fail-over to a server whose clock is behind.
    raw.xadd(VECTORS, {"k": "k", "v": axis(1).tobytes(), "e": "9e9"}, id="1-1")
    assert store.nearest(scope(), axis(1), 4) == [(1.0, entry())]


def test_a_large_scope_is_read_in_steps(
    shared: RedisServer, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, vector in enumerate(random_vectors(50)):
        store.put(scope(), f"k{number}", entry(str(number)), vector)
    monkeypatch.setattr(store_redis, "CHUNK", 20)
    other = opened(shared)
    other._limits = Limits(1_000, timeout_s=0.0)
    assert [len(other.nearest(scope(), axis(0), 100)) for _ in range(4)] == [20, 40, 50, 50]
    other.close()


def test_a_full_server_fails_puts_and_still_answers(store: RedisStore, raw: redis.Redis) -> None:
    store.put(scope(), "k", entry("kept"), axis(0))
    raw.config_set("maxmemory-policy", "noeviction")
    raw.config_set("maxmemory", 1)
    with pytest.raises(StoreError, match="maxmemory"):
        store.put(scope(), "k2", entry(), axis(1))
    assert store.get(scope(), "k") == entry("kept")
    assert store.nearest(scope(), axis(0), 4) == [(1.0, entry("kept"))]
    raw.config_set("maxmemory", 0)
    store.put(scope(), "k2", entry(), axis(1))
    assert store.get(scope(), "k2") == entry()


def test_killed_and_back_it_is_used_again(own: RedisServer) -> None:
    store = opened(own)
    store.put(scope(), "k", entry(), axis(0))
    assert len(store.nearest(scope(), axis(0), 4)) == 1
    own.kill()
    for call in calls(store):
        with pytest.raises(StoreError, match="Redis"):
            call()
    own.start()
    # It kept nothing; the index must not either.
    assert store.nearest(scope(), axis(0), 4) == []
    assert store.get(scope(), "k") is None
    store.put(scope(), "k", entry("new"), axis(0))
    assert store.nearest(scope(), axis(0), 4) == [(1.0, entry("new"))]
    store.close()


def test_killed_in_the_middle_of_a_load(own: RedisServer) -> None:
    store = opened(own)
    vectors, failed, wrong = random_vectors(50), [], []
    go_on = threading.Event()
    go_on.set()

    def work(number: int) -> None:
        while go_on.is_set():
            for key in range(50):
                name = f"{number}-{key}"
                try:
                    store.put(scope(), name, entry(name), vectors[key])
                    found = store.get(scope(), name)
                    if found is not None and found.answer != name:
                        wrong.append(found)
                    store.nearest(scope(), vectors[key], 2)
                except StoreError as error:
                    failed.append(error)
                    time.sleep(0.001)
                except BaseException as error:
                    wrong.append(error)
                    return

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        wait_until(lambda: store.get(scope(), "0-0") is not None, "the load")
        before = len(failed)
        own.kill()
        wait_until(lambda: len(failed) > before, "a failure")  # noqa: B023
        own.start()
    go_on.clear()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert failed
    assert not wrong
    store.put(scope(), "k", entry("after"), axis(0))
    assert store.get(scope(), "k") == entry("after")
    store.close()


def test_a_server_that_does_not_answer_fails_and_is_used_again(own: RedisServer) -> None:
    patient = opened(own)
    patient.put(scope(), "k", entry(), axis(0))
    store = opened(own, Limits(1_000, timeout_s=0.1))
    own.stop()
    for call in calls(store):
        with pytest.raises(StoreError, match="[Tt]ime"):
            call()
    own.go_on()
    assert patient.get(scope(), "k") == entry()
    assert patient.nearest(scope(), axis(0), 1) == [(1.0, entry())]
    patient.close()
    store.close()


def test_a_password_is_sent_and_never_told(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, "--requirepass", "s3cret")
    try:
        store = open_store(server.url.replace("//", "//:s3cret@"), LIMITS)
        store.put(scope(), "k", entry(now=time.time()), None)
        assert store.get(scope(), "k") is not None
        store.close()
        for user in ("", ":wr0ng@"):
            store = open_store(server.url.replace("//", f"//{user}"), LIMITS)
            with pytest.raises(StoreError) as caught:
                store.get(scope(), "k")
            assert "wr0ng" not in str(caught.value)
            store.close()
    finally:
        server.kill()


def test_tls_by_url() -> None:
    store = open_store("rediss://127.0.0.1:1/0?ssl_cert_reqs=required", LIMITS)
    assert isinstance(store, RedisStore)
    connection = store._client.connection_pool.make_connection()
    assert isinstance(connection, redis.SSLConnection)
    assert connection.cert_reqs == ssl.CERT_REQUIRED
    assert connection.retry._retries == 0  # no reply is waited for twice
    store.close()


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cret@host:port/0",
        "redis://:s3cret@host:70000/0",
        "redis://:s3cret@host/0?socket_timeout=9",
        "redis://:s3cret@host/0?decode_responses=true",
        "redis://:s3cret@host/0?unknown=",
        "redis://:s3cret@host/0?ssl_ca_certs=ca.pem",
        "rediss://:s3cret@host/0?ssl_unknown=1",
        "redis://:s3cret@[host/0",
        "redis://user:s3cret/x@host/0",
    ],
)
def test_a_bad_url_is_told_without_its_password(url: str) -> None:
    with pytest.raises(OperatorError) as caught:
        open_store(url, LIMITS)
    assert "s3cret" not in str(caught.value)
    assert "cache_store" in str(caught.value)


def test_a_password_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """So neither a config file nor a command line has it, and Triton's page of the model's parameters not."""
    monkeypatch.setenv("STORE_PASSWORD", "p@ss/word#1")
    with closing(open_store("redis://me:${STORE_PASSWORD}@127.0.0.1:1/0", LIMITS)) as store:
        assert isinstance(store, RedisStore)
        assert store._client.connection_pool.connection_kwargs["password"] == "p@ss/word#1"
    with pytest.raises(OperatorError, match="the variable NOT_SET_HERE is not set"):
        open_store("redis://me:${NOT_SET_HERE}@127.0.0.1:1/0", LIMITS)
