"""Writes figures as JSON, CSV and JSON lines."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trimodal.bench.load.records import Record
from trimodal.bench.load.statistics import Summary
from trimodal.errors import SettingsError


def write_json(path: Path, figures: Mapping[str, Any]) -> None:
    """Writes plain data; what is no number (nan, inf) becomes null, as JSON has no word for it."""
    _write("--json", path, json.dumps(_finite(figures), indent=2, default=str) + "\n")


def write_csv(path: Path, rows: Sequence[tuple[Mapping[str, str], Summary]]) -> None:
    """Writes a line for each summary.

    Args:
        rows: columns that name the case, alike for all rows, and the summary.
    """
    flat = [{**names, **flatten(summary)} for names, summary in rows]
    columns = list(dict.fromkeys(column for row in flat for column in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    _write("--csv", path, text.getvalue())


def flatten(summary: Summary) -> dict[str, Any]:
    """One level of names: rates as they are, "ttft_ms_p99", its bounds "ttft_ms_p99_low" and "_high"."""
    row: dict[str, Any] = {}
    for name, value in asdict(summary).items():
        if isinstance(value, int | float | str | None):
            row[name] = value
    for name, found in summary.metrics.items():
        row |= {f"{name}_mean": found.mean, f"{name}_min": found.least, f"{name}_max": found.most}
        for label, estimate in found.percentiles.items():
            row[f"{name}_{label}"] = estimate.value
            row |= {f"{name}_{label}_low": estimate.low, f"{name}_{label}_high": estimate.high}
    row |= {f"cost_{name}": value for name, value in asdict(summary.costs).items()} if summary.costs else {}
    row |= {f"slo_{verdict.text}": verdict.met for verdict in summary.verdicts}
    return row | dict(summary.more)


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
