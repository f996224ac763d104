"""Keeps lists of settings in TOML files, [[name]] after [[name]], and reads them again when they change."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from trimodal.errors import SettingsError
from trimodal.files import alone_in, replace_file
from trimodal.settings import describe, read_toml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Table = TypeVar("Table", bound=BaseModel)
Contents = TypeVar("Contents")
Row = Mapping[str, object]
_SCALAR = r"""(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\s#"'\[]+)"""
logger = logging.getLogger(__name__)


def read_tables(file: Path, whole: type[Table], row: type[BaseModel], missing: Table | None = None) -> Table:
    """Reads a file as `whole`, a list of `row`, or gives `missing` where there is no such file.

    Raises: SettingsError naming the file and the field.
    """
    try:
        return whole.model_validate(read_toml(file))
    except OSError as error:
        if missing is not None and isinstance(error, FileNotFoundError):
            return missing
        raise SettingsError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    except ValidationError as error:
        raise SettingsError(f"{file}: {describe(error, row)}") from None
    except ValueError as error:  # not UTF-8, or no TOML
        raise SettingsError(f"{file}: {error}") from None
    except RecursionError:
        raise SettingsError(f"{file}: nested too deeply") from None


def change_tables(
    file: Path,
    comment: str,
    name: str,
    fields: Sequence[str],
    changes: Mapping[tuple[object, ...], Row | None],
) -> None:
    """Changes tables of a file in one step; the others, and comments, stay as they were written.

    Args:
        comment: the first line of a new file.
        fields: what tells tables apart.
        changes: by those fields' values, what to set, None where a field is to go; None: the table is to go.
            A table that is not there is added.
    """
    file = _followed(file)
    text = file.read_text(encoding="utf-8") if file.exists() else f"# {comment}\n"
    rows = {_values(row, fields): dict(row) for row in tomllib.loads(text).get(name, ())}
    for values, change in changes.items():
        row = {**rows.pop(values, dict(zip(fields, values, strict=True))), **(change or {})}
        if change is not None:
            rows[values] = {field: value for field, value in row.items() if value is not None}
    edited = _edited(text, name, fields, changes, rows) or _written(comment, name, rows.values())
    replace_file(file, edited.encode(), private=True)


def _followed(file: Path) -> Path:
    """What a link leads to: it stays one. Raises: SettingsError where root would write what another chose."""
    if file.is_symlink() and os.geteuid() == 0 and (owner := file.lstat().st_uid):
        raise SettingsError(f"{file}: a link of user {owner}, which root does not follow")
    return Path(os.path.realpath(file))


def _values(row: Row, fields: Sequence[str]) -> tuple[object, ...]:
    return tuple(row[field] for field in fields)


def _written(comment: str, name: str, rows: Iterable[Row]) -> str:
    return "\n".join([f"# {comment}\n", *(_table(name, row) for row in rows)])


def _table(name: str, row: Row) -> str:
    return "".join([f"[[{name}]]\n", *(_line(field, value) for field, value in row.items())])


def _line(field: str, value: object) -> str:
    # Written in TOML as in JSON: texts, numbers, true and false, lists of texts.
    return f"{field} = {json.dumps(value, ensure_ascii=False)}\n"


def _edited(
    text: str,
    name: str,
    fields: Sequence[str],
    changes: Mapping[tuple[object, ...], Row | None],
    rows: Mapping[tuple[object, ...], Row],
) -> str:
    """The text with what `changes` says, which holds `rows` then; empty: it is written in another form."""
    text = text if text.endswith("\n") else f"{text}\n"
    # Comments right above a table are its own; those above the first are the file's.
    starts = [
        at.end(1) if not number else at.start() for number, at in enumerate(_header(name).finditer(text))
    ]
    parts = [text[start:end] for start, end in pairwise([0, *starts, len(text)])]
    left = dict(changes)
    try:
        for number, part in enumerate(parts[1:], 1):
            values = _values(tomllib.loads(part)[name][0], fields)
            if values in left:
                parts[number] = _changed(part, left.pop(values))
                if number == 1:  # the file's comments do not become the next table's
                    parts[number] = parts[number] or "\n"
        parts += ["\n" + _table(name, rows[values]) for values, row in left.items() if row is not None]
        edited = "".join(parts)
        held = {_values(row, fields): row for row in tomllib.loads(edited).get(name, ())}
    except (ValueError, LookupError):  # as a header in a text of several lines
        return ""
    return edited if held == rows else ""


def _header(name: str) -> re.Pattern[str]:
    return re.compile(rf"((?:^[ \t]*#.*\n)*)^[ \t]*\[\[[ \t]*{name}[ \t]*\]\]", re.MULTILINE)


def _changed(part: str, change: Row | None) -> str:
    """One table's text with other values, or what comes after it where it is to go."""
    last = max(at.end() for at in re.finditer(r"^[ \t]*[^#\s].*\n", part, re.MULTILINE))
    table, after = part[:last], part[last:]
    if change is None:
        return after
    for field, value in change.items():
        line = re.compile(rf"^([ \t]*{field}[ \t]*=)[ \t]*{_SCALAR}([ \t]*(?:#.*)?\n)", re.MULTILINE)
        if value is None:
            table = line.sub("", table)
        elif line.search(table):
            told = json.dumps(value, ensure_ascii=False).replace("\\", r"\\")  # in a template of `sub`
            table = line.sub(rf"\g<1> {told}\g<2>", table)
        else:
            table += _line(field, value)
    return table + after


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Keeps other commands from changing the file while the block reads it and writes it back.

    Raises: OSError: there are no locks, and of two changes at the same moment one would be lost.
    """
    file = _followed(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    with alone_in(file.parent):
        yield


class WatchedFile(Generic[Contents]):
    """A file that is read again when it changes.

    One that is gone, unreadable or malformed leaves the contents as they were, and the log says so, once; it
    is read again at each look, as what kept it from being read may have passed.
    """

    def __init__(self, file: Path, read: Callable[[Path], Contents]) -> None:
        self._file, self._read = file, read
        self._stamp = _stamp(file)
        self._refusal = ""  # why it was not taken when it was read last
        self.contents = read(file)

    def changed(self) -> bool:
        """Reads the file again if it is another one; whether `contents` are new."""
        stamp = _stamp(self._file)
        if stamp == self._stamp:
            return False
        try:
            contents = self._read(self._file)
            if _stamp(self._file) == _GONE:  # what `read` may take for an empty one
                raise SettingsError(f"{self._file}: no such file or directory")
        except SettingsError as error:
            if str(error) != self._refusal:
                logger.error("what the file had before stays in force: %s", error)
            self._refusal = str(error)
            return False
        self._stamp, self._refusal = stamp, ""
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
