"""Keeps lists of settings in TOML files, [[name]] after [[name]], that a running gateway reads again."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from trimodal.errors import SettingsError
from trimodal.settings import describe

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Table = TypeVar("Table", bound=BaseModel)
Stamp = tuple[int, int, int]


def read_tables(file: Path, whole: type[Table], row: type[BaseModel]) -> Table:
    """Reads a file as `whole`, a list of `row`. Raises: SettingsError naming the file and the field."""
    try:
        return whole.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise SettingsError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    except ValidationError as error:
        raise SettingsError(f"{file}: {describe(error, row)}") from None
    except ValueError as error:  # not UTF-8, or no TOML
        raise SettingsError(f"{file}: {error}") from None
    except RecursionError:
        raise SettingsError(f"{file}: nested too deeply") from None


def write_tables(file: Path, comment: str, name: str, rows: Iterable[Mapping[str, object]]) -> None:
    """Replaces the file in one step, readable by its owner only."""
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
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise


def stamp(file: Path) -> Stamp:
    """Changes when the file does."""
    try:
        found = file.stat()
    except OSError:
        return (0, 0, 0)
    return found.st_mtime_ns, found.st_size, found.st_ino
