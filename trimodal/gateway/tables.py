"""Keeps lists of settings in TOML files, [[name]] after [[name]], and reads them again when they change."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from trimodal.errors import SettingsError
from trimodal.settings import describe, read_toml

Table = TypeVar("Table", bound=BaseModel)
Contents = TypeVar("Contents")
logger = logging.getLogger(__name__)


def read_tables(file: Path, whole: type[Table], row: type[BaseModel]) -> Table:
    """Reads a file as `whole`, a list of `row`. Raises: SettingsError naming the file and the field."""
    try:
        return whole.model_validate(read_toml(file))
    except OSError as error:
        raise SettingsError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    except ValidationError as error:
        raise SettingsError(f"{file}: {describe(error, row)}") from None
    except ValueError as error:  # not UTF-8, or no TOML
        raise SettingsError(f"{file}: {error}") from None
    except RecursionError:
        raise SettingsError(f"{file}: nested too deeply") from None


def write_tables(file: Path, comment: str, name: str, rows: Iterable[Mapping[str, object]]) -> None:
    """Replaces the file in one step; it stays its owner's, and readable by nobody else.

    A first file is its directory's owner's: who writes it for a service as root hands it over.
    """
    lines = [f"# {comment}"]
    for row in rows:
        lines += ["", f"[[{name}]]"]
        # Written in TOML as in JSON: texts, whole numbers, true and false, lists of texts.
        lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in row.items()]
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write("\n".join(lines) + "\n")
        with suppress(OSError):  # only root may give it away
            owner = (file if file.exists() else file.parent).stat()
            os.chown(temporary, owner.st_uid, owner.st_gid)
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Keeps other commands from changing the file while the block reads it and writes it back."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # Of the directory: the file itself is replaced, and a lock beside it would stay.
    handle = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class WatchedFile(Generic[Contents]):
    """A file that is read again when it changes.

    One that is gone, unreadable or malformed leaves the contents as they were, and the log says so.
    """

    def __init__(self, file: Path, read: Callable[[Path], Contents]) -> None:
        self._file, self._read = file, read
        self._stamp = _stamp(file)
        self.contents = read(file)

    def changed(self) -> bool:
        """Reads the file again if it is another one; whether `contents` are new."""
        stamp = _stamp(self._file)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            contents = self._read(self._file)
            if _stamp(self._file) == _GONE:  # what `read` may take for an empty one
                raise SettingsError(f"{self._file}: no such file or directory")
        except SettingsError as error:
            logger.error("what the file had before stays in force: %s", error)
            return False
        self.contents = contents
        return True


_GONE = (0, 0, 0)


def _stamp(file: Path) -> tuple[int, int, int]:
    """Changes when the file does."""
    try:
        status = file.stat()
    except OSError:
        return _GONE
    return status.st_mtime_ns, status.st_size, status.st_ino
