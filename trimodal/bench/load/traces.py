"""Reads traces: when requests arrived at a real service, and how long they were.

    Azure LLM inference   CSV with TIMESTAMP,ContextTokens,GeneratedTokens
    Mooncake              JSON lines with timestamp (ms), input_length, output_length, hash_ids

Texts are not in them. Mooncake's `hash_ids` name blocks of 512 tokens of the prompt: prompts whose ids begin
alike begin with the same text.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from trimodal.errors import SettingsError

AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOONCAKE = ("timestamp", "input_length", "output_length")
BLOCK_TOKENS = 512  # of one of Mooncake's hash_ids
MOST_LINES = 500_000


@dataclass(frozen=True, slots=True)
class Traced:
    """One request of a trace: when it arrives (seconds after the first), its lengths in tokens."""

    at: float
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


def read_trace(path: Path, speed: float = 1.0, scale: float = 1.0) -> list[Traced]:
    """Reads a trace by its form, in the order of arrival.

    Args:
        speed: 2 replays it in half the time.
        scale: of all lengths: 0.1 makes a trace of a large service fit a small model.

    Raises:
        SettingsError: names the file, the line and what is wrong with it.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = [line for _, line in zip(range(MOST_LINES + 2), file, strict=False)]
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--trace {path}: cannot be read: {error}") from None
    if len(lines) > MOST_LINES + 1:
        raise SettingsError(f"--trace {path}: {MOST_LINES} requests at most")
    first = next((line for line in lines if line.strip()), "")
    found = _mooncake(path, lines) if first.lstrip().startswith("{") else _azure(path, lines)
    if not found:
        raise SettingsError(f"--trace {path}: no request in it")
    found.sort(key=lambda one: one.at)
    begin = found[0].at
    return [
        Traced(
            (one.at - begin) / speed,
            max(1, round(one.input_tokens * scale)),
            max(1, round(one.output_tokens * scale)),
            one.blocks,
        )
        for one in found
    ]


def _azure(path: Path, lines: Sequence[str]) -> list[Traced]:
    rows = csv.DictReader(lines)
    if missing := [name for name in AZURE if name not in (rows.fieldnames or ())]:
        raise SettingsError(
            f"--trace {path}: line 1 lacks {', '.join(missing)}: a CSV with the columns "
            f"{', '.join(AZURE)} or JSON lines with {', '.join(MOONCAKE)} is needed"
        )
    found = []
    for row in rows:
        try:
            at = _seconds(row["TIMESTAMP"])
            found.append(Traced(at, _length(row["ContextTokens"]), _length(row["GeneratedTokens"])))
        except (ValueError, TypeError, OverflowError) as error:
            raise SettingsError(f"--trace {path}: line {rows.line_num}: {error}") from None
    return found


def _seconds(text: str) -> float:
    """Of a date, "2023-11-16 18:15:46.6805900", of which Python reads six decimals; or of a number."""
    try:
        return _finite(text)
    except ValueError:
        whole, dot, decimals = text.strip().rstrip("Z").partition(".")
        digits, plus, zone = decimals.partition("+")
        fraction = float(f"0.{digits}") if dot else 0.0
        moment = datetime.fromisoformat(f"{whole}{plus}{zone}")
        # Without a zone it is taken as UTC: a local one would jump when clocks change.
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp() + fraction


def _mooncake(path: Path, lines: Iterable[str]) -> list[Traced]:
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            at, given, made = (row[name] for name in MOONCAKE)
            blocks = tuple(int(one) for one in row.get("hash_ids") or ())
            found.append(Traced(_finite(at) / 1e3, _length(given), _length(made), blocks))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            shown = f"lacks {error}" if isinstance(error, KeyError) else str(error)
            raise SettingsError(f"--trace {path}: line {number}: {shown}") from None
    return found


def _length(value: Any) -> int:
    length = int(value)
    if not 0 <= length <= 10_000_000:
        raise ValueError(f"a length of {length} tokens")
    return length


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"a time of {number}")
    return number
