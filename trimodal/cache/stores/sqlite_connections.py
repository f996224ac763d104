"""Connects to one SQLite file that several processes share, and replaces a damaged one.

Write-ahead logging: readers never wait for a writer, and a killed process leaves a whole file. Not for
network file systems: SQLite's shared memory needs one machine.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trimodal.cache.stores.base import StoreError
from trimodal.cache.stores.sqlite_file import alone, create, is_damage, make_ready, set_aside
from trimodal.errors import OperatorError

# Writes run in the background; another process may be clearing a piece meanwhile.
WRITE_WAIT_S = 2.0
LOG_BYTES = 16 << 20  # a longer log is cut when it has been copied
# Deleted securely: a dropped answer does not stay in a free page.
SETTINGS = ("synchronous=NORMAL", "cell_size_check=1", "secure_delete=1", f"journal_size_limit={LOG_BYTES}")
POOL = 8


class Database:
    """Connections to one file. `era` counts the files that have been at its path: what was read is void.

    Raises:
        OperatorError: the path cannot be used, or holds another program's or a newer version's database.
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
        with self._told(era):
            if connection is None:
                connection = self._connect(self._wait_s)
                connection.execute("PRAGMA query_only=1")
            keep = False
            try:
                yield connection
                keep = True
            finally:
                with self._lock:
                    keep = keep and era == self.era and not self._closed and len(self._idle) < POOL
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
            with self._told(era):
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
            writer = self._writer
            if writer is not None:
                with suppress(sqlite3.Error):
                    writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Waits for a write that is under way; calls after it raise StoreError."""
        with self._writing, self._lock:
            self._closed = True
            if self._writer is not None:
                self._writer.close()
            self._drop_connections()

    @contextmanager
    def _told(self, era: int) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if is_damage(error):
                self._replace(era, str(error))
            raise StoreError(f"{self.path.name}: {error}") from None

    def _follow(self) -> None:
        """Opens what is at the path now: another process may have set a damaged file aside, or removed it."""
        if self._closed:
            raise StoreError(f"{self.path.name} is closed")
        try:
            same = self._writer is not None and os.stat(self.path).st_ino == self._inode
        except FileNotFoundError:
            same = False
        except OSError as error:
            raise StoreError(f"{self.path.name}: {error.strerror}") from None
        if not same:
            try:
                self._open()
            except OperatorError as error:
                raise StoreError(str(error)) from None

    def _replace(self, era: int, why: str) -> None:
        with self._lock:
            if era != self.era or self._closed:
                return  # another thread did it
            self._drop_connections()
            with suppress(OperatorError), alone(self.path.parent):
                if os.path.exists(self.path) and os.stat(self.path).st_ino == self._inode:
                    set_aside(self.path, why)

    def _open(self) -> None:
        self._drop_connections()
        try:
            if not self.path.parent.is_dir():
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with alone(self.path.parent):
                self._prepare()
        except sqlite3.Error as error:
            raise OperatorError(f"cache_store '{self.path}': {error}") from None
        except OSError as error:
            raise OperatorError(f"cache_store '{self.path}': {error.strerror}") from None
        self.era += 1

    def _prepare(self) -> None:
        for attempt in range(2):
            create(self.path)
            writer: sqlite3.Connection | None = None
            try:
                writer = self._connect(WRITE_WAIT_S)
                make_ready(writer, self.path)
                self._writer, self._inode = writer, os.stat(self.path).st_ino
                return
            except BaseException as error:
                if writer is not None:
                    writer.close()
                if attempt or not (isinstance(error, sqlite3.Error) and is_damage(error)):
                    raise
                set_aside(self.path, str(error))

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
