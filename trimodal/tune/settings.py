"""Defines what `trimodal tune` is told: what is tuned, and how it is measured."""

from __future__ import annotations

from dataclasses import dataclass, field

from trimodal.bench.load.slo import NO_SLO, Slo
from trimodal.errors import SettingsError
from trimodal.server.options import ServerOptions
from trimodal.tune.objective import Objective
from trimodal.tune.search import Budget
from trimodal.tune.workload import Workload


@dataclass(frozen=True)
class TuneSettings:
    """All that is told. Raises: SettingsError: two of them contradict each other.

    Attributes:
        knobs: as `model.knob=a,b,c` or `model.knob=lo..hi`; the others keep their ranges.
        only: the others are not searched.
        seconds, warmup: of one round; after a load the warm-up is twice as long.
        url: of a server that runs; empty: one is started with `options`.
    """

    model: str
    objective: Objective
    options: ServerOptions
    slo: Slo = NO_SLO
    workload: Workload = field(default_factory=Workload)
    budget: Budget = field(default_factory=Budget)
    knobs: tuple[str, ...] = ()
    only: bool = False
    seconds: float = 3.0
    warmup: float = 0.5
    url: str = ""
    operator_key: str = ""

    def __post_init__(self) -> None:
        if self.url and self.options.changes:
            raise SettingsError("--set changes a server that is started here: leave it or --url out")
        if self.only and not self.knobs:
            raise SettingsError("--only needs a --knob")
