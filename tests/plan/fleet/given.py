"""Replicas and arrivals of the tests."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from trimodal.plan.fleet.figures import ReplicaFigures
from trimodal.plan.fleet.plans import Plan
from trimodal.plan.fleet.simulation import Simulation
from trimodal.plan.fleet.tally import Objective, Outcome
from trimodal.plan.fleet.traces import Arrival
from trimodal.plan.fleet.workload import Recorded


class Exactly:
    """Always this length."""

    def __init__(self, length: int) -> None:
        self.length = length

    def draw(self, rng: random.Random) -> int:
        return self.length


class Between:
    """Any length of a range."""

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most

    def draw(self, rng: random.Random) -> int:
        return rng.randint(self.least, self.most)


def replica(**changes: Any) -> ReplicaFigures:
    """Steps of 10 ms whatever the batch, 100 µs a prompt token."""
    values: dict[str, Any] = {
        "step_ms": [[1, 10.0]],
        "prefill_us": 100.0,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 256,
        "num_kv_blocks": 512,
        "max_queue": 1 << 20,
        "cold_start_s": 5.0,
        "warm_start_s": 0.5,
        "price_per_hour": 3.6,
    }
    return ReplicaFigures.model_validate({**values, **changes})


def plan(figures: ReplicaFigures | None = None, **fields: Any) -> Plan:
    return Plan.model_validate(
        {"name": "it", "replica": figures or replica(), "policy": "round_robin", **fields}
    )


def play(plan: Plan, arrivals: Iterable[Arrival], **more: Any) -> tuple[Outcome, Simulation]:
    """The outcome and the simulation that it comes from."""
    workload = arrivals if hasattr(arrivals, "seconds") else Recorded(list(arrivals))
    objective = more.pop("objective", Objective(1.0, 0.1))
    simulation = Simulation(plan, workload, objective, **more)  # type: ignore[arg-type]
    return simulation.run(), simulation
