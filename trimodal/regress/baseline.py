"""Writes a run to a file in one step and reads it back; damage is told in one sentence."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pydantic import ValidationError

from trimodal.errors import OperatorError
from trimodal.regress.values import Run


def baseline_path(golden: Path) -> Path:
    """Where a golden set's baseline lies by default: golden.baseline.json beside golden.jsonl."""
    return golden.with_name(f"{golden.stem}.baseline.json")


def check_writable(path: Path, golden: Path) -> None:
    """Checks, before minutes of requests, that a baseline can be written.

    Raises:
        OperatorError: no baseline can be written there, or what is there must not be replaced by one.
    """
    if path.exists() and (not path.is_file() or path.samefile(golden)):
        what = "the golden set itself" if path.is_file() else "no file"
        raise OperatorError(f"{path} is {what}: name another file with --baseline")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        reason = "permission denied" if path.parent.is_dir() else "no such directory"
        raise OperatorError(f"{path} cannot be written: {reason}")


def write_baseline(path: Path, run: Run) -> None:
    """Replaces the file; a reader meanwhile sees the old one or the new one.

    Raises:
        OperatorError: it cannot be written.
    """
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(run.model_dump_json(indent=1, exclude_defaults=True) + "\n")
        os.chmod(temporary, 0o644)  # mkstemp's 0600 would keep it from others who share the golden set
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise OperatorError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from None


def read_baseline(path: Path) -> Run:
    """Reads a recorded run.

    Raises:
        OperatorError: there is none, or it cannot be read; says what to do.
    """
    try:
        run = Run.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise OperatorError(
            f"no baseline {path}: record one with --record, or name it with --baseline"
        ) from None
    except OSError as error:
        raise OperatorError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "JSON"
        raise OperatorError(f"{path} is no baseline ({place}): record it again with --record") from None
    for name, record in run.cases.items():
        if any(not 0 <= one.answer < len(record.answers) for one in record.observations):
            raise OperatorError(f"{path} is damaged (cases.{name}): record it again with --record")
    return run
