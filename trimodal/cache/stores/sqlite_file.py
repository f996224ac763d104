"""Makes the SQLite file of answers, checks it when it is opened, and sets a damaged one aside."""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from trimodal.errors import OperatorError

logger = logging.getLogger(__name__)

APPLICATION = 0x54524D43  # "TRMC" in the file's header: one of ours
VERSION = 1
_MAGIC, _HEADER = b"SQLite format 3\0", 100  # https://www.sqlite.org/fileformat.html, 1.3
# Checked in full when opened (about 0.1 s); damage in a larger one is noticed where it is read.
CHECKED_BYTES = 64 << 20
ALONE_S = 5.0
_DAMAGE = ("malformed", "not a database", "disk image", "corrupt")

# `place` is a scope's name: see `codec.scope_name`.
SCHEMA = """
CREATE TABLE answers (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    place TEXT NOT NULL, key TEXT NOT NULL,
    expires_at REAL NOT NULL, used_at REAL NOT NULL,
    vector BLOB,
    fingerprint BLOB NOT NULL, tenant BLOB NOT NULL, namespace BLOB NOT NULL,
    packed BLOB NOT NULL);
CREATE UNIQUE INDEX by_key ON answers(place, key);
CREATE INDEX by_number ON answers(place, number) WHERE vector IS NOT NULL;
CREATE INDEX by_expiry ON answers(expires_at);
CREATE INDEX by_use ON answers(used_at);
CREATE INDEX by_tenant ON answers(tenant, namespace, fingerprint);
CREATE TABLE tally (entries INTEGER NOT NULL, cleared INTEGER NOT NULL);
INSERT INTO tally VALUES (0, 0);
CREATE TRIGGER counted AFTER INSERT ON answers BEGIN UPDATE tally SET entries = entries + 1; END;
CREATE TRIGGER uncounted AFTER DELETE ON answers BEGIN UPDATE tally SET entries = entries - 1; END;
"""


def create(path: Path) -> None:
    """An empty file that only its owner may read, unless there is one. Raises OSError or OperatorError."""
    try:
        # Never opened when it exists: closing any descriptor of it would end SQLite's own locks.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        if not path.is_file():
            raise OperatorError(f"cache_store '{path}': it is no file") from None


def may_be_ours(path: Path) -> bool:
    """Whether the file's header says that it is a store, or its log may still say so. Raises OSError."""
    with path.open("rb") as file:
        header = file.read(_HEADER)
    if not header.startswith(_MAGIC):
        return False
    return header[68:72] == APPLICATION.to_bytes(4, "big") or Path(f"{path}-wal").exists()


def is_damage(error: sqlite3.Error) -> bool:
    # Python 3.10 has no error codes here.
    return isinstance(error, sqlite3.DatabaseError) and any(word in str(error) for word in _DAMAGE)


def make_ready(writer: sqlite3.Connection, path: Path) -> None:
    """Checks the file, or makes its tables. Raises sqlite3.DatabaseError where it is damaged."""

    def told(query: str) -> Any:
        return writer.execute(query).fetchone()[0]

    tables, version = told("SELECT count(*) FROM sqlite_master"), told("PRAGMA user_version")
    if tables and told("PRAGMA application_id") != APPLICATION:
        raise OperatorError(f"cache_store '{path}' is another program's database: name another file")
    if tables and version != VERSION:
        raise OperatorError(
            f"cache_store '{path}' has schema {version}, {VERSION} is needed: remove it, or name another file"
        )
    if not tables:
        writer.execute("PRAGMA auto_vacuum=INCREMENTAL")
    if told("PRAGMA journal_mode=WAL") != "wal":
        raise OperatorError(f"cache_store '{path}': its file system cannot share memory: name a local file")
    if not tables:
        header = f"PRAGMA application_id={APPLICATION}; PRAGMA user_version={VERSION};"
        writer.executescript(f"BEGIN IMMEDIATE; {SCHEMA} {header} COMMIT;")
    elif path.stat().st_size <= CHECKED_BYTES:
        said = told("PRAGMA quick_check(1)")
        if said != "ok":
            raise sqlite3.DatabaseError(f"malformed: {said}")


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Only one process at a time makes or sets aside files here. Raises OperatorError after ALONE_S."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        deadline = time.monotonic() + ALONE_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise OperatorError(f"{directory} is locked by another process") from None
                time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def set_aside(path: Path, why: str) -> None:
    """Renames the file, with its log, and logs a warning. Call it `alone`. Raises OSError."""
    name = f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}"
    number = 0
    while (path.parent / f"{name}{number or ''}").exists():
        number += 1
    aside = path.parent / f"{name}{number or ''}"
    # The log first: a fresh file beside an old log would get the log's pages.
    for end in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            os.rename(f"{path}{end}", f"{aside}{end}")
    why = " ".join(why.split())  # SQLite's may take several lines
    logger.warning("%s is damaged (%s): kept as %s, a fresh one is begun", path, why, aside.name)
