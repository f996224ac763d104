"""Reads arrival traces: what came when, how long it was, and whose beginning its prompt has.

    this project's         CSV with arrival_s,prompt_tokens,output_tokens[,prefix_id[,prefix_tokens]],
                           or JSON lines with the same names
    Azure LLM inference    CSV with TIMESTAMP,ContextTokens,GeneratedTokens (2023 and 2024 alike)
    BurstGPT               CSV with Timestamp,Request tokens,Response tokens[,Session ID]

`prefix_tokens`: all prompts of a prefix_id have so many tokens in common; 0 or none: a talk, of which each
prompt begins with the one before and its answer. A session of BurstGPT is such a talk. BurstGPT's failed
requests, which have no response tokens, are left out.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from trimodal.errors import SettingsError
from trimodal.plan.fleet.prefixes import Key
from trimodal.settings import shorten

MOST_LINES = 5_000_000
MOST_TOKENS = 10_000_000


class Arrival(NamedTuple):
    """One request: when it comes, seconds; tokens; `shared`: see `prefix_tokens` above."""

    at: float
    prompt: int
    output: int
    prefix: Key | None = None
    shared: int = 0


@dataclass(frozen=True)
class _Form:
    """Which column holds what; the last two may be missing in a file."""

    at: str
    prompt: str
    output: str
    prefix: str = ""
    shared: str = ""
    failed: bool = False  # whether requests without an answer are in it, to be left out


_OWN = _Form("arrival_s", "prompt_tokens", "output_tokens", "prefix_id", "prefix_tokens")
FORMS = (
    _OWN,
    _Form("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    _Form("Timestamp", "Request tokens", "Response tokens", "Session ID", failed=True),
)


class _Wrong(Exception):
    """A field that cannot be read: its name, and what is wrong with it."""


def read_trace(
    file: Path, *, speed: float = 1.0, scale: float = 1.0, seconds: float = math.inf
) -> list[Arrival]:
    """Reads a trace by its form, in the order of arrival, from its first request on.

    Args:
        speed: 2 replays it in half the time. scale: of all lengths.
        seconds: what comes later, of the replay's time, is left out.

    Raises:
        SettingsError: names file, line and field.
    """
    found: list[Arrival] = []
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            for number, row, form in _rows(file, lines):
                if len(found) >= MOST_LINES:
                    raise SettingsError(f"{file}: line {number}: {MOST_LINES} requests at most")
                try:
                    one = _arrival(row, form)
                except _Wrong as error:
                    raise SettingsError(f"{file}: line {number}: {error}") from None
                if one:
                    found.append(one)
    except OSError as error:
        raise SettingsError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{file}: not UTF-8") from None
    if not found:
        raise SettingsError(f"{file}: no request in it")
    found.sort(key=lambda one: one.at)
    begin = found[0].at
    moved = (
        Arrival(
            (one.at - begin) / speed,
            max(1, round(one.prompt * scale)),
            max(1, round(one.output * scale)),
            one.prefix,
            round(one.shared * scale),
        )
        for one in found
    )
    return list(itertools.takewhile(lambda one: one.at <= seconds, moved))


def _rows(file: Path, lines: Iterable[str]) -> Iterator[tuple[int, Mapping[str, Any], _Form]]:
    """Line number, fields and form of each request."""
    lines = iter(lines)
    skipped = 0
    for first in lines:
        if first.strip():
            break
        skipped += 1
    else:
        return
    lines = itertools.chain([first], lines)
    if first.lstrip().startswith("{"):
        for number, line in enumerate(lines, skipped + 1):
            if line.strip():
                yield number, _object(file, number, line), _OWN
        return
    rows = csv.DictReader(lines)
    try:
        names = set(rows.fieldnames or ())
        form = next((one for one in FORMS if {one.at, one.prompt, one.output} <= names), None)
        if form is None:
            known = " or ".join(f"{one.at},{one.prompt},{one.output}" for one in FORMS)
            raise SettingsError(f"{file}: line {skipped + 1}: the columns {known} are needed")
        for row in rows:
            yield skipped + rows.line_num, row, form
    except csv.Error as error:
        raise SettingsError(f"{file}: line {skipped + rows.line_num}: {error}") from None


def _object(file: Path, number: int, line: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{file}: line {number}: {getattr(error, 'msg', error)}") from None
    if not isinstance(row, dict):
        raise SettingsError(f"{file}: line {number}: an object is needed, not {shorten(line.strip())}")
    return row


def _arrival(row: Mapping[str, Any], form: _Form) -> Arrival | None:
    """The request in a row; None: it failed when it was recorded. Raises: _Wrong."""
    output = _count(row, form.output, 0)
    if form.failed and not output:
        return None
    prefix = row.get(form.prefix) if form.prefix else None
    if isinstance(prefix, list | dict | bool):
        raise _Wrong(f"{form.prefix} is {shorten(repr(prefix))}: a text or a number is needed")
    key = None if prefix is None or not str(prefix).strip() else str(prefix).strip()
    shared = _count(row, form.shared, 0) if form.shared and row.get(form.shared) not in (None, "") else 0
    if shared and key is None:
        raise _Wrong(f"{form.shared} is {shared}, but {form.prefix} is empty")
    # A prompt of no tokens is one in some traces: the model gets its template at least.
    return Arrival(_seconds(row, form.at), max(1, _count(row, form.prompt, 0)), max(1, output), key, shared)


def _count(row: Mapping[str, Any], name: str, least: int) -> int:
    value = row.get(name)
    if value is None:
        raise _Wrong(f"{name} is missing")
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not (least <= number <= MOST_TOKENS and number == int(number)):
        raise _Wrong(
            f"{name} is {shorten(repr(value))}: a whole number from {least} to {MOST_TOKENS} is needed"
        )
    return int(number)


def _seconds(row: Mapping[str, Any], name: str) -> float:
    """Of a number, or of a date as "2023-11-16 18:15:46.6805900", of which Python reads six decimals."""
    value = row.get(name)
    if value is None:
        raise _Wrong(f"{name} is missing")
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = _moment(str(value))
    if not math.isfinite(found) or isinstance(value, bool):
        raise _Wrong(f"{name} is {shorten(repr(value))}: seconds or a date is needed")
    return found


def _moment(text: str) -> float:
    whole, dot, decimals = text.strip().removesuffix("Z").partition(".")
    decimals, plus, zone = decimals.partition("+")
    try:
        fraction = float(f"0.{decimals}") if dot else 0.0
        moment = datetime.fromisoformat(f"{whole}{plus}{zone}")
    except ValueError:
        return math.nan
    # Without a zone it is taken as UTC: a local one would jump when clocks change.
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp() + fraction
