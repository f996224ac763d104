"""The embedded store: restarts, kills, several processes on one file, tenants without number."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cache.stores.rig import Clock, axis, between, calls, entry, random_vectors, scope
from trimodal.cache.stores import sqlite, sqlite_file
from trimodal.cache.stores.base import Limits, Owner, StoreError, open_store
from trimodal.cache.stores.sqlite import SqliteStore

LIMITS = Limits(1_000, timeout_s=2.0)
# Writes without end, saying the number of each answer once it is stored.
WRITER = """
import sys
from pathlib import Path
from tests.cache.stores.rig import entry, scope, random_vectors
from trimodal.cache.stores.base import Limits
from trimodal.cache.stores.sqlite import SqliteStore
store = SqliteStore(Path(sys.argv[1]), Limits(300, 2.0), lambda: 1.7e9)
vectors = random_vectors(1_000)
for number in range(10**9):
    store.put(scope(tenant=sys.argv[2]), f"k{number}", entry(f"{number} " * 300), vectors[number % 1_000])
    print(number, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "answers" / "llm.sqlite"


@contextmanager
def opened(path: Path, limits: Limits = LIMITS, clock: Clock | None = None) -> Iterator[SqliteStore]:
    store = SqliteStore(path, limits, clock or Clock())
    try:
        yield store
    finally:
        store.close()


@contextmanager
def writer(path: Path, tenant: str = "") -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", WRITER, str(path), tenant]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_smaller_bound_is_reached_in_pieces(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "PIECE", 20)
    with opened(path) as store:
        for number in range(100):
            store.put(scope(), f"k{number}", entry(), None)
    with opened(path, Limits(30, 2.0)) as store:
        sizes = []
        for number in range(5):
            store.put(scope(), f"new{number}", entry(), None)
            sizes.append(store.stats().entries)
    assert sizes == [81, 62, 43, 30, 30]


def test_killed_while_it_writes_it_is_whole(path: Path) -> None:
    for round_ in range(4):
        tenant = f"t{round_}"
        with writer(path, tenant) as process:
            assert process.stdout is not None
            for _ in range(40 + 17 * round_):
                last = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            process.wait(20)
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()
        with opened(path) as store:
            # What it said was stored is there, and whole.
            kept = store.get(scope(tenant=tenant), f"k{last}")
            assert kept is not None
            assert kept.answer == f"{last} " * 300
            assert len(store.nearest(scope(tenant=tenant), axis(0), 4)) == 4
    assert list(path.parent.glob("*.damaged*")) == []


def test_another_process_writes_and_clears(path: Path) -> None:
    with opened(path) as store, writer(path, "other") as process:
        assert process.stdout is not None
        number = int(process.stdout.readline())
        assert store.get(scope(tenant="other"), f"k{number}") is not None
        store.nearest(scope(tenant="other"), axis(0), 4)
        for _ in range(20):
            store.put(scope(tenant="mine"), "k", entry("mine"), axis(0))
            number = int(process.stdout.readline())
        process.kill()
        process.wait(20)
        # It may be far ahead of what was read of it, and have dropped that.
        number = max([number, *map(int, process.stdout)])
        found = store.nearest(scope(tenant="other"), random_vectors(1_000)[number % 1_000], 1)
        assert found[0][1].answer == f"{number} " * 300
        with opened(path) as command:
            assert command.clear(Owner(tenant="other")) > 20
        assert store.nearest(scope(tenant="other"), axis(0), 4) == []
        assert store.get(scope(tenant="mine"), "k") is not None


def test_a_write_under_way_holds_up_no_reader(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "WRITE_WAIT_S", 0.05)
    with opened(path, Limits(1_000, timeout_s=0.05)) as store:
        store.put(scope(), "k", entry(), axis(0))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM answers")
        assert store.get(scope(), "k") == entry()
        assert store.nearest(scope(), axis(0), 1) == [(1.0, entry())]
        assert store.stats().entries == 1
    other.execute("ROLLBACK")
    other.close()


def test_a_write_that_cannot_have_its_turn_fails(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "WRITE_WAIT_S", 0.05)
    with opened(path) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            store.put(scope(), "k", entry(), None)
        other.execute("ROLLBACK")
        other.close()
        store.put(scope(), "k", entry(), None)
        assert store.get(scope(), "k") == entry()


def test_a_poisoned_row_is_a_miss(path: Path) -> None:
    with opened(path) as store:
        for number in range(5):
            store.put(scope(), f"k{number}", entry(f"{number}"), between(0, 1, 0.9 - number / 10))
        with sqlite3.connect(path) as other:
            other.execute(
                "UPDATE answers SET packed = (SELECT packed FROM answers WHERE key = 'k1') WHERE key = 'k0'"
            )
            other.execute("UPDATE answers SET packed = 'text' WHERE key = 'k2'")
            other.execute("UPDATE answers SET vector = x'00' WHERE key = 'k3'")
        other.close()
        assert store.get(scope(), "k0") is None
        assert store.get(scope(), "k2") is None
        assert store.get(scope(), "k3") is not None
        assert [kept.answer for _, kept in store.nearest(scope(), axis(0), 4)] == ["1", "4"]


def test_a_large_scope_is_read_in_steps(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "CHUNK", 10)
    monkeypatch.setattr(sqlite, "SCOPE_ROWS", 50)
    vectors = random_vectors(100)
    with opened(path, Limits(1_000, timeout_s=0.0)) as store:
        for number, vector in enumerate(vectors):
            store.put(scope(), f"k{number}", entry(str(number)), vector)
        counts = [len(store.nearest(scope(), axis(0), 100)) for _ in range(7)]
        # A chunk a call; of the oldest 50 none.
        assert counts == [10, 20, 30, 40, 50, 50, 50]
        assert {int(kept.answer) for _, kept in store.nearest(scope(), axis(0), 100)} == set(range(50, 100))


def test_the_file_is_for_its_owner_alone(path: Path) -> None:
    old = os.umask(0)
    try:
        with opened(path) as store:
            store.put(scope(), "k", entry(), axis(0))
            modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    finally:
        os.umask(old)
    assert modes == {"llm.sqlite": 0o600, "llm.sqlite-wal": 0o600, "llm.sqlite-shm": 0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_dropped_answers_leave_the_file(path: Path) -> None:
    with opened(path, Limits(500, 2.0)) as store:
        for number in range(600):
            store.put(scope(), f"k{number}", entry(f"number {number:04} " * 30), axis(0))
        assert store.clear(Owner()) == 500
        left = b"".join(file.read_bytes() for file in (path, path.with_name(path.name + "-wal")))
    for number in range(600):
        assert f"number {number:04}".encode() not in left


def test_a_full_disk_fails_puts_and_still_answers(path: Path) -> None:
    with opened(path) as store:
        store.put(scope(), "k", entry("kept"), axis(0))
        with store._database.writing() as writer:
            pages = writer.execute("PRAGMA page_count").fetchone()[0]
            writer.execute(f"PRAGMA max_page_count={pages + 5}")
        with pytest.raises(StoreError, match="full"):
            store.put(scope(), "large", entry("x" * 60_000), axis(1))
        assert store.get(scope(), "k") == entry("kept")
        assert store.nearest(scope(), axis(0), 1) == [(1.0, entry("kept"))]
        store.clear(Owner())
        store.put(scope(), "k", entry("again"), axis(0))
        assert store.get(scope(), "k") == entry("again")


def test_calls_after_close_fail(path: Path) -> None:
    store = SqliteStore(path, LIMITS)
    store.put(scope(), "k", entry(), axis(0))
    store.close()
    for call in calls(store):
        with pytest.raises(StoreError, match="closed"):
            call()


def test_it_is_opened_by_its_path(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(path.parent))
    for url in (str(path), "~/home.sqlite"):
        store = open_store(url, Limits())
        store.put(scope(), "k", entry(now=time.time()), None)
        assert store.get(scope(), "k") is not None
        store.close()
    assert (path.parent / "home.sqlite").exists()


def test_close_while_threads_read_and_write(path: Path) -> None:
    store = SqliteStore(path, LIMITS, Clock())
    started, failures = threading.Semaphore(0), []

    def work(number: int) -> None:
        started.release()
        try:
            for key in range(100_000):
                store.put(scope(), f"{number}-{key}", entry(), axis(0))
                store.nearest(scope(), axis(0), 2)
        except StoreError:
            return
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for _ in threads:
        started.acquire()
    time.sleep(0.05)
    store.close()
    for thread in threads:
        thread.join(30)
    assert not failures
    assert not any(thread.is_alive() for thread in threads)


OPENS = """
import sys
from trimodal.cache.stores.base import Limits, open_store
open_store(sys.argv[1].encode("utf-8", "surrogateescape").decode(), Limits()).close()
"""


def test_a_path_is_opened_where_the_locale_knows_ascii_alone_as_in_tritons_stub(tmp_path):
    environment = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    file = tmp_path / "é%20 ünd" / "answers.sqlite"
    done = subprocess.run(
        [sys.executable, "-c", OPENS, str(file)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert file.is_file()
