"""Replicas and arrivals of the tests."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from trimodal.plan.fleet.outcome import Objective
from trimodal.plan.fleet.replica import ReplicaFigures
from trimodal.plan.fleet.simulation import Simulation
from trimodal.plan.fleet.spec import FleetSpec
from trimodal.plan.fleet.workload import Arrival


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
        "price_per_hour": 3.6,
    }
    return ReplicaFigures.model_validate({**values, **changes})


def fleet(figures: ReplicaFigures | None = None, **fields: Any) -> FleetSpec:
    return FleetSpec.model_validate(
        {"name": "it", "replica": figures or replica(), "policy": "round_robin", **fields}
    )


def played(spec: FleetSpec, arrivals: Iterable[Arrival], **more: Any) -> Simulation:
    """A simulation after its run."""
    simulation = Simulation(spec, Objective(), **more)
    simulation.run(arrivals)
    return simulation
