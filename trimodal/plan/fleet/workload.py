"""Makes arrivals: Poisson, in bursts, or with the hours of a day, with lengths as published traces have them.

The same seed makes the same requests. A workload is read anew for every plan, so none is kept in memory.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, Protocol, get_args

from trimodal.errors import SettingsError
from trimodal.plan.fleet.traces import Arrival

Kind = Literal["poisson", "gamma", "diurnal"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MOST_REQUESTS = 50_000_000

# Prompt and answer tokens as text that `trimodal bench` reads: a lognormal with the published median, whose
# spread makes the published mean. Azure: medians of Patel et al., "Splitwise", ISCA 2024 (arXiv:2311.18677),
# means of the public trace of 2023. ShareGPT and Alpaca: Kwon et al., "PagedAttention", SOSP 2023
# (arXiv:2309.06180), give means alone: the spread of 1 is an assumption.
LENGTHS: dict[str, tuple[str, str]] = {
    "azure-conversation": ("lognormal:1020,0.5", "lognormal:129,0.99"),
    "azure-code": ("lognormal:1500,0.79", "lognormal:13,1.24"),
    "sharegpt": ("lognormal:98,1", "lognormal:205,1"),
    "alpaca": ("lognormal:11.7,1", "lognormal:35.5,1"),
}


class Draws(Protocol):
    """A distribution of lengths."""

    def draw(self, rng: random.Random) -> int:
        """One length, 1 at least."""


class Workload(Protocol):
    """What arrives, as often as it is read; `seconds`: how long arrivals last."""

    @property
    def seconds(self) -> float: ...

    def __iter__(self) -> Iterator[Arrival]: ...


@dataclass(frozen=True)
class Recorded:
    """The requests of a trace."""

    arrivals: Sequence[Arrival]

    @property
    def seconds(self) -> float:
        return self.arrivals[-1].at

    def __iter__(self) -> Iterator[Arrival]:
        return iter(self.arrivals)


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


@dataclass(frozen=True)
class Generated:
    """Requests of a random process for so many seconds, `rate` a second on average.

    Attributes:
        burstiness: of gamma: 1 is Poisson, less comes in bursts.
        swing, period: of diurnal: the rate goes from rate × (1 − swing), where it begins, to
            rate × (1 + swing) and back in so many seconds.
    """

    kind: Kind
    rate: float
    seconds: float
    prompt: Draws
    output: Draws
    burstiness: float = 1.0
    swing: float = 0.5
    period: float = 86_400.0
    prefixes: Prefixes | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, most in (
            ("rate", self.rate, 1e6), ("seconds", self.seconds, 1e7), ("burstiness", self.burstiness, 1e3),
            ("period", self.period, 1e7),
        ):  # fmt: skip
            if not 0 < value <= most:
                raise SettingsError(f"--{name} {value:g}: above 0 and at most {most:g} is needed")
        if not 0 <= self.swing <= 1:
            raise SettingsError(f"--swing {self.swing:g}: 0 to 1 is needed")
        if self.rate * self.seconds > MOST_REQUESTS:
            raise SettingsError(f"--rate × --seconds: {MOST_REQUESTS} requests at most")

    def __iter__(self) -> Iterator[Arrival]:
        rng = random.Random(f"{self.seed} lengths")
        prompt, output = self.prompt.draw, self.output.draw
        choose = _Chooser(self.prefixes, random.Random(f"{self.seed} prefixes")) if self.prefixes else None
        for at in self._times(random.Random(f"{self.seed} times")):
            if at > self.seconds:
                return
            number = choose() if choose else None
            if number is None or self.prefixes is None:
                yield Arrival(at, prompt(rng), output(rng))
            else:  # the question comes after the shared beginning
                shared = self.prefixes.tokens
                yield Arrival(at, shared + prompt(rng), output(rng), number, shared)

    def _times(self, rng: random.Random) -> Iterator[float]:
        at = 0.0
        if self.kind == "gamma":
            shape, mean = self.burstiness, 1 / (self.rate * self.burstiness)
            while True:
                at += rng.gammavariate(shape, mean)
                yield at
        # Diurnal by thinning (Lewis and Shedler, 1979): of a process of the highest rate each arrival stays
        # with the probability that its hour has.
        swing = self.swing if self.kind == "diurnal" else 0.0
        highest, turn = self.rate * (1 + swing), 2 * math.pi / self.period
        while True:
            at += rng.expovariate(highest)
            if not swing or rng.random() * (1 + swing) <= 1 - swing * math.cos(turn * at):
                yield at


class _Chooser:
    """Draws the number of a shared beginning; None: the prompt has one of its own."""

    def __init__(self, prefixes: Prefixes, rng: random.Random) -> None:
        self._share, self._rng = prefixes.share, rng
        self._numbers = range(prefixes.count)
        self._weights = list(accumulate((number + 1) ** -prefixes.skew for number in self._numbers))

    def __call__(self) -> int | None:
        if self._rng.random() >= self._share:
            return None
        return self._rng.choices(self._numbers, cum_weights=self._weights)[0]
