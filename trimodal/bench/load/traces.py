"""Reads traces: when requests arrived at a real service, and how long they were.

    Azure LLM inference   CSV with TIMESTAMP,ContextTokens,GeneratedTokens
    Mooncake              JSON lines with timestamp (ms), input_length, output_length, hash_ids

Texts are not in them. Mooncake's `hash_ids` name blocks of 512 tokens of the prompt: prompts whose ids begin
alike begin with the same text.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from trimodal.errors import SettingsError

BLOCK_TOKENS = 512  # of one of Mooncake's hash_ids
MOST_LINES = 500_000
Length = Annotated[int, Field(ge=0, le=10_000_000)]


@dataclass(frozen=True, slots=True)
class Traced:
    """One request of a trace: when it arrives (seconds after the first), its lengths in tokens."""

    at: float
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


class _Azure(BaseModel):
    TIMESTAMP: datetime
    ContextTokens: Length
    GeneratedTokens: Length

    def traced(self) -> Traced:
        # Without a zone it is taken as UTC: a local one would jump when clocks change.
        at = self.TIMESTAMP if self.TIMESTAMP.tzinfo else self.TIMESTAMP.replace(tzinfo=timezone.utc)
        return Traced(at.timestamp(), self.ContextTokens, self.GeneratedTokens)


class _Mooncake(BaseModel):
    timestamp: float = Field(allow_inf_nan=False)
    input_length: Length
    output_length: Length
    hash_ids: tuple[int, ...] | None = None

    def traced(self) -> Traced:
        return Traced(self.timestamp / 1e3, self.input_length, self.output_length, self.hash_ids or ())


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
            lines = list(itertools.islice(file, MOST_LINES + 2))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--trace {path}: cannot be read: {error}") from None
    if len(lines) > MOST_LINES + 1:
        raise SettingsError(f"--trace {path}: {MOST_LINES} requests at most")
    found = sorted(_requests(path, lines), key=lambda one: one.at)
    if not found:
        raise SettingsError(
            f"--trace {path}: no request in it: a CSV with the columns {', '.join(_Azure.model_fields)} or "
            f"JSON lines with {', '.join(_Mooncake.model_fields)} is needed"
        )
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


def _requests(path: Path, lines: Sequence[str]) -> list[Traced]:
    found = []
    rows: Iterable[tuple[int, Any]] = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    first = next((line for _, line in rows), "")
    if not first.lstrip().startswith("{"):
        numbers, texts = [number for number, _ in rows], [line for _, line in rows]
        rows = zip(numbers[1:], csv.DictReader(texts), strict=False)
    for number, row in rows:
        try:
            kind = _Mooncake.model_validate_json if isinstance(row, str) else _Azure.model_validate
            found.append(kind(row).traced())
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(map(str, problem["loc"]))
            raise SettingsError(f"--trace {path}: line {number}: {where} {problem['msg']}") from None
    return found
