"""Makes arrivals, a Poisson process whose same seed makes the same requests, or reads those of a trace."""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from trimodal.errors import SettingsError

MOST_REQUESTS = 10_000_000
_LONGEST_LINE = 1 << 16
Key = str | int  # of a prompt's beginning


class Arrival(NamedTuple):
    """One request.

    Attributes:
        at: seconds. prompt, output: tokens.
        prefix: of prompts that begin alike; None: one of its own.
        shared: tokens that all prompts of the prefix have in common.
    """

    at: float
    prompt: int
    output: int
    prefix: Key | None = None
    shared: int = 0


class Draws(Protocol):
    """A distribution of lengths."""

    def draw(self, rng: random.Random) -> int:
        """One length, 1 at least."""


@dataclass(frozen=True)
class Prefixes:
    """Shared beginnings: so many, of so many tokens, in this share of the prompts.

    Attributes:
        skew: of Zipf's law: the n-th is asked for in proportion to 1 / n^skew; 0: all alike.
    """

    count: int
    tokens: int
    share: float = 1.0
    skew: float = 1.0

    def __post_init__(self) -> None:
        if not (0 < self.count <= 10_000_000 and self.tokens > 0 and 0 <= self.share <= 1 and self.skew >= 0):
            raise SettingsError(
                "--prefixes COUNT:TOKENS[:SHARE[:SKEW]]: COUNT and TOKENS from 1, SHARE 0 to 1, SKEW from 0"
            )


def generate(
    rate: float,
    seconds: float,
    prompt: Draws,
    output: Draws,
    *,
    prefixes: Prefixes | None = None,
    seed: int = 0,
) -> list[Arrival]:
    """Requests of a Poisson process for so many seconds, `rate` a second on average.

    Raises:
        SettingsError: a number is out of bounds; names the option.
    """
    for name, value in (("rate", rate), ("seconds", seconds)):
        if not 0 < value <= 1e7:
            raise SettingsError(f"--{name} {value:g}: above 0 and at most 1e7 is needed")
    if rate * seconds > MOST_REQUESTS:
        raise SettingsError(f"--rate × --seconds: {MOST_REQUESTS} requests at most")
    generator, drawn = np.random.default_rng(seed), random.Random(seed)
    times = np.zeros(1)
    while times[-1] <= seconds:
        gaps = generator.exponential(1 / rate, 1 + round(rate * seconds))
        times = np.concatenate([times, times[-1] + np.cumsum(gaps)])
    times = times[1 : np.searchsorted(times, seconds, "right")]
    numbers = np.full(len(times), -1)  # of the beginnings; -1: one of its own
    if prefixes:
        weights = np.arange(1.0, prefixes.count + 1) ** -prefixes.skew
        chosen = generator.choice(prefixes.count, len(times), p=weights / weights.sum())
        numbers = np.where(generator.random(len(times)) < prefixes.share, chosen, -1)
    arrivals = []
    for at, number in zip(times.tolist(), numbers.tolist(), strict=True):
        lengths = prompt.draw(drawn), output.draw(drawn)
        if prefixes and number >= 0:  # the question comes after the shared beginning
            arrivals.append(Arrival(at, prefixes.tokens + lengths[0], lengths[1], number, prefixes.tokens))
        else:
            arrivals.append(Arrival(at, *lengths))
    return arrivals


class _Row(BaseModel):
    """A line of Azure's LLM inference traces."""

    TIMESTAMP: datetime
    ContextTokens: int = Field(ge=0, le=10_000_000)
    GeneratedTokens: int = Field(ge=0, le=10_000_000)

    def arrival(self) -> Arrival:
        # Without a zone it is taken as UTC: a local one would jump when clocks change.
        at = self.TIMESTAMP if self.TIMESTAMP.tzinfo else self.TIMESTAMP.replace(tzinfo=timezone.utc)
        return Arrival(at.timestamp(), max(1, self.ContextTokens), max(1, self.GeneratedTokens))


def read_trace(path: Path) -> list[Arrival]:
    """Reads Azure's CSV in the order of arrival. Raises: SettingsError naming the file, line and column."""
    found: list[Arrival] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = iter(lambda: file.readline(_LONGEST_LINE), "")  # of /dev/zero it has no end
            for row in csv.DictReader(lines):
                found.append(_Row.model_validate(row).arrival())
    except ValidationError as error:
        problem = error.errors()[0]
        where = f"line {len(found) + 2}: {'.'.join(map(str, problem['loc']))}"
        raise SettingsError(f"--trace {path}: {where} {problem['msg']}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SettingsError(f"--trace {path}: cannot be read: {error}") from None
    if not found:
        names = ", ".join(_Row.model_fields)
        raise SettingsError(f"--trace {path}: no request in it: a CSV with the columns {names} is needed")
    found.sort(key=lambda one: one.at)
    return [one._replace(at=one.at - found[0].at) for one in found]
