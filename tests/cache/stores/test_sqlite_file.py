"""The file under the embedded store: damage, other programs' files, files that come and go."""

import os
import sqlite3
import threading
from pathlib import Path

import pytest

from tests.cache.stores.rig import Clock, axis, entry, scope
from trimodal.cache.stores import sqlite_file
from trimodal.cache.stores.base import Limits, StoreError, open_store
from trimodal.cache.stores.sqlite import SqliteStore
from trimodal.errors import OperatorError
from trimodal.files import alone_in

LIMITS = Limits(1_000, timeout_s=2.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "llm.sqlite"


def spoil(path: Path) -> None:
    """No store is open: closing the file ends no lock."""
    with path.open("r+b") as file:
        file.seek(4096 * 8)
        file.write(b"\xff" * (path.stat().st_size - 4096 * 8))


def open_at(path: Path) -> SqliteStore:
    return SqliteStore(path, LIMITS, Clock())


def filled(path: Path, count: int = 200) -> None:
    store = open_at(path)
    for number in range(count):
        store.put(scope(), f"k{number}", entry("x" * 1_000), axis(number % 16))
    store.close()


def set_aside(path: Path) -> Path:
    return path.with_name(path.name + ".damaged")


@pytest.mark.parametrize("damage", ["garbage", "cut", "zeros in the middle", "header"])
def test_a_damaged_file_is_set_aside(path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    filled(path)
    content = bytearray(path.read_bytes())
    if damage == "garbage":
        content = bytearray(b"not a database at all " * 500)
    elif damage == "cut":
        del content[len(content) // 2 :]
    elif damage == "header":
        content[:100] = b"\xff" * 100
    else:
        content[4096 * 3 : 4096 * 30] = bytes(4096 * 27)
    path.write_bytes(content)
    store = open_at(path)
    assert store.stats().entries == 0
    store.put(scope(), "k", entry(), axis(0))
    assert store.nearest(scope(), axis(0), 1) == [(1.0, entry())]
    store.close()
    assert set_aside(path).read_bytes() == content
    (told,) = caplog.messages
    assert f"{path} is damaged" in told
    assert f"kept as {set_aside(path).name}" in told


def test_damage_while_it_runs_is_set_aside(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite_file, "CHECKED_BYTES", 0)
    filled(path, 2_000)
    spoil(path)
    store = open_at(path)
    failures = 0
    for number in range(200):
        try:
            store.get(scope(), f"k{number}")
            store.nearest(scope(), axis(0), 4)
        except StoreError:
            failures += 1
    assert failures == 1  # then it is a fresh file
    store.put(scope(), "k", entry(), axis(0))
    assert store.nearest(scope(), axis(0), 4) == [(1.0, entry())]
    store.close()
    assert len(caplog.messages) == 1
    assert set_aside(path).exists()


def test_two_stores_on_a_damaged_file_set_it_aside_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite_file, "CHECKED_BYTES", 0)
    filled(path, 1_000)
    spoil(path)
    stores = [open_at(path), open_at(path)]
    for store in stores * 2:
        for number in range(50):
            try:
                store.get(scope(), f"k{number}")
            except StoreError:
                continue
    stores[0].put(scope(), "k", entry("shared"), axis(0))
    assert stores[1].get(scope(), "k") == entry("shared")
    for store in stores:
        store.close()
    assert len(caplog.messages) == 1


def test_a_file_that_was_removed_is_made_again(path: Path) -> None:
    store = open_at(path)
    store.put(scope(), "k", entry(), axis(0))
    store.nearest(scope(), axis(0), 1)
    for file in path.parent.iterdir():
        file.unlink()
    assert store.get(scope(), "k") is None
    assert store.nearest(scope(), axis(0), 1) == []
    store.put(scope(), "k", entry("new"), axis(0))
    assert store.nearest(scope(), axis(0), 1) == [(1.0, entry("new"))]
    store.close()


def test_another_programs_database_is_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mail (text)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(OperatorError, match="another program's database"):
        open_at(path)
    assert path.read_bytes() == before


def test_an_older_version_is_set_aside(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An update keeps no model from loading."""
    filled(path, 1)
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 2")
    other.close()
    store = open_at(path)
    assert store.count() == 0
    store.put(scope(), "k", entry(), axis(0))
    assert store.get(scope(), "k") == entry()
    store.close()
    with sqlite3.connect(set_aside(path)) as other:
        assert other.execute("SELECT count(*) FROM answers").fetchone() == (1,)
    other.close()
    (told,) = caplog.messages
    assert f"{path} is of no use (older schema: 2, 3 is needed): kept as {set_aside(path).name}" in told


def test_a_later_version_is_left_alone(path: Path) -> None:
    filled(path, 1)
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 4")
    other.close()
    with pytest.raises(OperatorError, match="has schema 4, 3 is needed"):
        open_at(path)
    assert not set_aside(path).exists()


def test_a_path_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for url, words in (
        (str(tmp_path), "it is no file"),
        (str(tmp_path / "file" / "llm.sqlite"), "Not a directory|File exists"),
        ("/proc/nowhere/llm.sqlite", "No such file"),
        (str(tmp_path / ("x" * 300 + ".sqlite")), "too long"),
        (str(tmp_path / "passwd"), "a file whose name ends with .sqlite is needed"),
        ("mailto:someone", "a file whose name ends with .sqlite is needed"),
    ):
        with pytest.raises(OperatorError, match=words):
            open_store(url, Limits())


def test_a_locked_folder_is_not_waited_for_without_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "ALONE_S", 0.05)
    with alone_in(path.parent), pytest.raises(OperatorError, match="locked by another process"):
        open_at(path)


def test_stores_opened_at_once_share_one_file(path: Path) -> None:
    stores: list[SqliteStore] = []
    threads = [threading.Thread(target=lambda: stores.append(open_at(path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(stores) == 8
    stores[0].put(scope(), "k", entry(), axis(0))
    for store in stores:
        assert store.nearest(scope(), axis(0), 1) == [(1.0, entry())]
        store.close()


def test_connections_do_not_pile_up(path: Path) -> None:
    store = open_at(path)
    store.put(scope(), "k", entry(), None)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        threads = [threading.Thread(target=store.get, args=(scope(), "k")) for _ in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    # Two descriptors a connection: file and log.
    assert len(os.listdir("/proc/self/fd")) - before <= 3 * sqlite_file.POOL
    store.close()
    assert len(os.listdir("/proc/self/fd")) < before
