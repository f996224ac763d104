"""Makes arrivals: Poisson or in bursts, with lengths as a published trace has them.

The same seed makes the same requests.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from trimodal.errors import SettingsError
from trimodal.plan.fleet.balancers import Key

MOST_REQUESTS = 10_000_000

# Prompt and answer tokens as text that `trimodal bench` reads: a lognormal with the published median, whose
# spread makes the published mean. Azure: medians of Patel et al., "Splitwise", ISCA 2024 (arXiv:2311.18677),
# means of the public trace of 2023.
LENGTHS: dict[str, tuple[str, str]] = {
    "azure-conversation": ("lognormal:1020,0.5", "lognormal:129,0.99"),
    "azure-code": ("lognormal:1500,0.79", "lognormal:13,1.24"),
}


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
    burstiness: float = 1.0,
    prefixes: Prefixes | None = None,
    seed: int = 0,
) -> list[Arrival]:
    """Requests of a gamma process for so many seconds, `rate` a second on average.

    Args:
        burstiness: 1 is Poisson, less comes in bursts.

    Raises:
        SettingsError: a number is out of bounds; names the option.
    """
    for name, value in (("rate", rate), ("seconds", seconds), ("burstiness", burstiness)):
        if not 0 < value <= 1e7:
            raise SettingsError(f"--{name} {value:g}: above 0 and at most 1e7 is needed")
    if rate * seconds > MOST_REQUESTS:
        raise SettingsError(f"--rate × --seconds: {MOST_REQUESTS} requests at most")
    generator, drawn = np.random.default_rng(seed), random.Random(seed)
    times = np.zeros(1)
    while times[-1] <= seconds:
        gaps = generator.gamma(burstiness, 1 / (rate * burstiness), 1 + round(rate * seconds))
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
