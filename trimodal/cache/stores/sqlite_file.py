"""Connects to the SQLite file of answers, which several processes share, and sets a damaged or old one aside.

Write-ahead logging: readers never wait for a writer, and a killed process leaves a whole file. Not for
network file systems: SQLite's shared memory needs one machine.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from trimodal.cache.stores.base import StoreError
from trimodal.errors import OperatorError
from trimodal.files import alone_in

logger = logging.getLogger(__name__)

APPLICATION = 0x54524D43  # "TRMC" in the file's header: one of ours
VERSION = 3  # of the tables
_MAGIC, _HEADER = b"SQLite format 3\0", 100  # https://www.sqlite.org/fileformat.html, 1.3
# Checked in full when opened (about 0.1 s); damage in a larger one is noticed where it is read.
CHECKED_BYTES = 64 << 20
ALONE_S = 5.0
# Writes run in the background; another process may be clearing a piece meanwhile.
WRITE_WAIT_S = 2.0
LOG_BYTES = 16 << 20  # a longer log is cut when it has been copied
# Deleted securely: a dropped answer does not stay in a free page.
SETTINGS = ("synchronous=NORMAL", "cell_size_check=1", "secure_delete=1", f"journal_size_limit={LOG_BYTES}")
POOL = 8
_OLDER = "older schema"  # of an earlier version of this program: of as little use as a damaged file
_DAMAGE = ("malformed", "not a database", "disk image", "corrupt", _OLDER)

# `place` is a scope's name: see `codec.scope_name`.
SCHEMA = """
CREATE TABLE answers (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    place TEXT NOT NULL, key TEXT NOT NULL,
    expires_at REAL NOT NULL,
    vector BLOB,
    fingerprint BLOB NOT NULL, tenant BLOB NOT NULL, namespace BLOB NOT NULL,
    packed BLOB NOT NULL);
CREATE UNIQUE INDEX by_key ON answers(place, key);
CREATE INDEX by_number ON answers(place, number) WHERE vector IS NOT NULL;
CREATE INDEX by_expiry ON answers(expires_at);
CREATE INDEX by_tenant ON answers(tenant, namespace, fingerprint);
CREATE INDEX by_age ON answers(tenant, number);
CREATE TABLE tally (entries INTEGER NOT NULL, cleared INTEGER NOT NULL);
INSERT INTO tally VALUES (0, 0);
CREATE TABLE tenants (tenant BLOB PRIMARY KEY, entries INTEGER NOT NULL);
CREATE TRIGGER counted AFTER INSERT ON answers BEGIN
    UPDATE tally SET entries = entries + 1;
    INSERT INTO tenants VALUES (new.tenant, 1) ON CONFLICT (tenant) DO UPDATE SET entries = entries + 1;
END;
CREATE TRIGGER uncounted AFTER DELETE ON answers BEGIN
    UPDATE tally SET entries = entries - 1;
    UPDATE tenants SET entries = entries - 1 WHERE tenant = old.tenant;
    DELETE FROM tenants WHERE tenant = old.tenant AND entries = 0;
END;
"""


class Database:
    """Connections to one file. `era` counts the files that have been at its path: what was read is void.

    Raises:
        OperatorError: the path cannot be used, or holds another program's or a later version's database.
    """

    def __init__(self, path: Path, wait_s: float) -> None:
        self.path = path
        self.era = 0
        self._wait_s = wait_s
        self._lock = threading.Lock()  # of the pool and the file's identity
        self._writing = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._writer: sqlite3.Connection | None = None
        self._inode = -1
        self._closed = False
        with self._lock:
            self._open()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that cannot write, for this thread alone. Raises StoreError for what SQLite raises."""
        with self._lock:
            self._follow()
            era = self.era
            connection = self._idle.pop() if self._idle else None
        with self._store_errors(era):
            if connection is None:
                connection = self._connect(self._wait_s)
                connection.execute("PRAGMA query_only=1")
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
            with self._lock:
                keep = era == self.era and not self._closed and len(self._idle) < POOL
                if keep:
                    self._idle.append(connection)
            if not keep:
                connection.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction, committed unless the block raises. Raises StoreError for what SQLite raises."""
        if not self._writing.acquire(timeout=WRITE_WAIT_S):
            raise StoreError(f"{self.path} is busy")
        try:
            with self._lock:
                self._follow()
                era, writer = self.era, self._writer
            assert writer is not None  # _follow raises otherwise
            with self._store_errors(era):
                writer.execute("BEGIN IMMEDIATE")
                try:
                    yield writer
                    writer.execute("COMMIT")
                except BaseException:
                    with suppress(sqlite3.Error):
                        writer.execute("ROLLBACK")
                    raise
        finally:
            self._writing.release()

    def checkpoint(self) -> None:
        """Moves the log into the file and cuts it, so that nothing deleted stays there; not under readers."""
        with self._writing:
            if self._writer is not None:
                with suppress(sqlite3.Error):
                    self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Waits for a write that is under way; calls after it raise StoreError."""
        with self._writing, self._lock:
            self._closed = True
            if self._writer is not None:
                self._writer.close()
            self._drop_connections()

    @contextmanager
    def _store_errors(self, era: int) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if _is_damage(error):
                self._replace(era, str(error))
            raise StoreError(f"{self.path.name}: {error}") from None

    def _follow(self) -> None:
        """Opens what is at the path now: another process may have set a damaged file aside, or removed it."""
        if self._closed:
            raise StoreError(f"{self.path.name} is closed")
        try:
            if self._writer is None or not self._is_at_path():
                self._open()
        except OSError as error:
            raise StoreError(f"{self.path.name}: {error.strerror}") from None
        except OperatorError as error:
            raise StoreError(str(error)) from None

    def _is_at_path(self) -> bool:
        return self.path.exists() and self.path.stat().st_ino == self._inode

    def _replace(self, era: int, why: str) -> None:
        with self._lock:
            if era != self.era or self._closed:
                return  # another thread did it
            self._drop_connections()
            with suppress(OSError), alone_in(self.path.parent, patience_s=ALONE_S):
                if self._is_at_path():
                    _set_aside(self.path, why)

    def _open(self) -> None:
        self._drop_connections()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with alone_in(self.path.parent, patience_s=ALONE_S):
                try:
                    self._writer = self._open_writer()
                except sqlite3.Error as error:
                    if not _is_damage(error):
                        raise
                    _set_aside(self.path, str(error))
                    self._writer = self._open_writer()
                self._inode = self.path.stat().st_ino
        except (sqlite3.Error, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise OperatorError(f"cache_store '{self.path}': {reason}") from None
        self.era += 1

    def _open_writer(self) -> sqlite3.Connection:
        """Connects to the file, checked, or made with its tables where there is none."""
        try:
            # Never opened when it exists: closing any descriptor of it would end SQLite's own locks.
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            if not self.path.is_file():
                raise OperatorError(f"cache_store '{self.path}': it is no file") from None
        writer = self._connect(WRITE_WAIT_S)
        try:
            _make_ready(writer, self.path)
        except BaseException:
            writer.close()
            raise
        return writer

    def _connect(self, wait_s: float) -> sqlite3.Connection:
        # The pool hands a connection to one thread at a time.
        connection = sqlite3.connect(self.path, wait_s, isolation_level=None, check_same_thread=False)
        try:
            for setting in SETTINGS:
                connection.execute(f"PRAGMA {setting}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _drop_connections(self) -> None:
        for connection in self._idle:
            connection.close()
        # Another thread may be in the middle of a write: the last reference closes it.
        self._idle, self._writer = [], None


def may_be_ours(path: Path) -> bool:
    """Whether the file's header says that it is a store, or its log may still say so."""
    header = b""
    with suppress(OSError), path.open("rb") as file:
        header = file.read(_HEADER)
    if not header.startswith(_MAGIC):
        return False
    return header[68:72] == APPLICATION.to_bytes(4, "big") or Path(f"{path}-wal").exists()


def _make_ready(writer: sqlite3.Connection, path: Path) -> None:
    """Checks the file, or makes its tables. Raises sqlite3.DatabaseError where it is damaged or old."""

    def answer(query: str) -> Any:
        return writer.execute(query).fetchone()[0]

    tables, version = answer("SELECT count(*) FROM sqlite_master"), answer("PRAGMA user_version")
    if tables and answer("PRAGMA application_id") != APPLICATION:
        raise OperatorError(f"cache_store '{path}' is another program's database: name another file")
    if tables and version < VERSION:
        raise sqlite3.DatabaseError(f"{_OLDER}: {version}, {VERSION} is needed")
    if tables and version > VERSION:
        raise OperatorError(
            f"cache_store '{path}' has schema {version}, {VERSION} is needed: remove it, or name another file"
        )
    if answer("PRAGMA journal_mode=WAL") != "wal":
        raise OperatorError(f"cache_store '{path}': its file system cannot share memory: name a local file")
    if not tables:
        header = f"PRAGMA application_id={APPLICATION}; PRAGMA user_version={VERSION};"
        writer.executescript(f"BEGIN IMMEDIATE; {SCHEMA} {header} COMMIT;")
    elif path.stat().st_size <= CHECKED_BYTES and (found := answer("PRAGMA quick_check(1)")) != "ok":
        raise sqlite3.DatabaseError(f"malformed: {found}")


def _is_damage(error: sqlite3.Error) -> bool:
    # Python 3.10 has no error codes here.
    return isinstance(error, sqlite3.DatabaseError) and any(word in str(error) for word in _DAMAGE)


def _set_aside(path: Path, why: str) -> None:
    """Renames the file, in place of one set aside before, and logs a warning. Call it alone."""
    aside = f"{path}.damaged"
    # The log first: a fresh file beside an old log would get the log's pages.
    for end in ("-wal", "-shm", ""):
        Path(f"{aside}{end}").unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            os.rename(f"{path}{end}", f"{aside}{end}")
    why = " ".join(why.split())  # SQLite's may take several lines
    state = "of no use" if _OLDER in why else "damaged"
    logger.warning("%s is %s (%s): kept as %s, a fresh one is begun", path, state, why, Path(aside).name)
