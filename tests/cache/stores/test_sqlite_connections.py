"""The file under the embedded store: damage, other programs' files, files that come and go."""

import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from tests.cache.stores.rig import Clock, axis, entry, scope
from trimodal.cache.stores import sqlite_connections, sqlite_file
from trimodal.cache.stores.base import Limits, StoreError, open_store
from trimodal.cache.stores.sqlite import SqliteStore
from trimodal.errors import OperatorError

LIMITS = Limits(1_000, timeout_s=2.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "llm.sqlite"


def open_at(path: Path) -> SqliteStore:
    return SqliteStore(path, LIMITS, Clock())


def filled(path: Path, count: int = 200) -> None:
    store = open_at(path)
    for number in range(count):
        store.put(scope(), f"k{number}", entry("x" * 1_000), axis(number % 16))
    store.close()


def set_aside(path: Path) -> list[Path]:
    files = path.parent.glob("*.damaged-*")
    return [file for file in files if not file.name.endswith(("-wal", "-shm"))]


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
    aside = set_aside(path)
    assert [file.read_bytes() for file in aside] == [content]
    said = caplog.messages
    assert len(said) == 1
    assert f"{path} is damaged" in said[0]
    assert aside[0].name in said[0]


def test_damage_while_it_runs_is_set_aside(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite_file, "CHECKED_BYTES", 0)
    filled(path, 2_000)
    size = path.stat().st_size
    with path.open("r+b") as file:  # no store is open: closing this ends no lock
        file.seek(4096 * 8)
        file.write(b"\xff" * (size - 4096 * 8))
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
    assert len(set_aside(path)) == 1


def test_two_stores_on_a_damaged_file_set_it_aside_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite_file, "CHECKED_BYTES", 0)
    filled(path, 1_000)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096 * 8)
        file.write(b"\xff" * (size - 4096 * 8))
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


def test_another_version_is_left_alone(path: Path) -> None:
    filled(path, 1)
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 2")
    other.close()
    with pytest.raises(OperatorError, match="has schema 2, 1 is needed"):
        open_at(path)
    assert list(path.parent.glob("*.damaged-*")) == []


def test_a_path_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for url, words in (
        (str(tmp_path), "it is no file"),
        (str(tmp_path / "file" / "llm.sqlite"), "Not a directory|File exists"),
        ("/proc/nowhere/llm.sqlite", "No such file"),
        (str(tmp_path / ("x" * 300 + ".sqlite")), "too long"),
        (str(tmp_path / "passwd"), "a file whose name ends with .sqlite is needed"),
        ("mailto:someone", "a file's path or a URL of"),
    ):
        with pytest.raises(OperatorError, match=words):
            open_store(url, Limits())


def test_a_folder_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    open_at(tmp_path / "a.sqlite").close()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_a_locked_folder_is_not_waited_for_without_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "ALONE_S", 0.05)
    with (
        sqlite_file.alone(path.parent),
        pytest.raises(OperatorError, match="locked by another process"),
    ):
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
    assert len(os.listdir("/proc/self/fd")) - before <= 3 * sqlite_connections.POOL
    store.close()
    assert len(os.listdir("/proc/self/fd")) < before
