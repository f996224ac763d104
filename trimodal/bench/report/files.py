"""Writes figures as JSON and JSON lines; what is no number (nan, inf) becomes null, as JSON has none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from trimodal.bench.load.records import Record
from trimodal.errors import SettingsError


def write_json(path: Path, figures: Mapping[str, Any]) -> None:
    """Writes plain data. Raises: SettingsError: the file cannot be written."""
    _write("--json", path, to_json(figures, indent=2, inf_nan_mode="null", fallback=str) + b"\n")


def write_jsonl(path: Path, runs: Iterable[tuple[Mapping[str, str], Iterable[Record]]]) -> None:
    """Writes a line for each request: what names its case, then its record, times in seconds."""
    rows = ({**names, **asdict(record)} for names, records in runs for record in records)
    _write("--jsonl", path, b"".join(to_json(row, inf_nan_mode="null") + b"\n" for row in rows))


def _write(option: str, path: Path, text: bytes) -> None:
    try:
        path.write_bytes(text)
    except OSError as error:
        raise SettingsError(f"{option} {path}: cannot be written: {error.strerror}") from None
