"""Plans a run: which loads one after the other, how long, in how many rounds, and what is asked of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from trimodal.bench.load.generator import MAX_IN_FLIGHT, MOST_REQUESTS, Arrivals, Closed, poisson
from trimodal.bench.load.slo import NO_SLO, Slo
from trimodal.errors import SettingsError

SECONDS = 30.0  # of a run whose length is not given
_MOST_RATE = 10_000.0


@dataclass(frozen=True)
class Case:
    """One load. `size`: clients or requests a second; `arrivals`: of a seed."""

    name: str
    size: float
    arrivals: Callable[[int], Arrivals]
    expected: int  # requests, about: so many are made before


@dataclass(frozen=True)
class LoadPlan:
    """What is sent; see the options of `trimodal bench`. Times in seconds.

    Attributes:
        sizes: clients of closed loops, or rates of open ones: a case each.
        requests: instead of `seconds`; with neither a loop runs for 30 s.
        warmup: seconds, or requests with `requests`.
        rounds: of each case, in which all sides take turns.
        lasts: how long a request takes by itself, as a live stream does: it is waited for so much longer.
    """

    load: Literal["closed", "poisson"] = "closed"
    sizes: tuple[float, ...] = (1,)
    seconds: float = 0.0
    requests: int = 0
    warmup: float = 0.0
    max_in_flight: int = MAX_IN_FLIGHT
    rounds: int = 1
    timeout: float = 60.0
    lasts: float = 0.0
    slo: Slo = NO_SLO
    seed: int = 0

    def __post_init__(self) -> None:
        for size in self.sizes:
            if self.load == "closed" and not (1 <= size <= 4096 and size == int(size)):
                raise SettingsError(f"a closed loop of {size:g} clients: 1 to 4096 is needed")
            if self.load != "closed" and not 0 < size <= _MOST_RATE:
                raise SettingsError(f"--rate {size:g}: above 0 and at most {_MOST_RATE:g} a second is needed")
            timed = self.load != "closed" and self.duration
            if timed and size * (self.duration + self.warmup) > MOST_REQUESTS:
                raise SettingsError(
                    f"--rate {size:g} for {self.duration + self.warmup:g} s: {MOST_REQUESTS} requests at most"
                )
        if self.seconds and self.requests:
            raise SettingsError("--seconds and --requests: one of them")
        if self.requests and self.requests + self.warmup > MOST_REQUESTS:
            raise SettingsError(f"--requests and --warmup: {MOST_REQUESTS} requests at most")

    @property
    def duration(self) -> float:
        """Seconds of a run; 0: until `requests` are answered."""
        return 0.0 if self.requests else self.seconds or SECONDS

    @property
    def expected(self) -> int:
        """Requests of the largest case, about."""
        return max(case.expected for case in self.cases)

    @property
    def cases(self) -> list[Case]:
        seconds = self.duration + self.warmup
        known = int(self.requests + self.warmup) if self.requests else 0
        return [self._case(size, seconds, known) for size in self.sizes]

    def _case(self, size: float, seconds: float, known: int) -> Case:
        if self.load == "closed":
            name = f"{size:g} client{'s' if size > 1 else ''}"
            return Case(name, size, lambda _: Closed(int(size)), known or int(size * max(1.0, seconds)))
        expected = known or int(1.2 * size * seconds) + 10
        return Case(f"poisson {size:g}/s", size, lambda seed: poisson(size, seed), expected)
