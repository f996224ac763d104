"""Writes figures as JSON and JSON lines."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trimodal.bench.load.records import Record
from trimodal.errors import SettingsError


def write_json(path: Path, figures: Mapping[str, Any]) -> None:
    """Writes plain data; what is no number (nan, inf) becomes null, as JSON has no word for it."""
    _write("--json", path, json.dumps(_finite(figures), indent=2, default=str) + "\n")


def write_jsonl(path: Path, runs: Iterable[tuple[Mapping[str, str], Iterable[Record]]]) -> None:
    """Writes a line for each request: what names its case, then its record, times in seconds."""
    lines = (
        json.dumps(_finite({**names, **asdict(record)})) for names, records in runs for record in records
    )
    _write("--jsonl", path, "".join(f"{line}\n" for line in lines))


def _write(option: str, path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{option} {path}: cannot be written: {error.strerror}") from None


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value
