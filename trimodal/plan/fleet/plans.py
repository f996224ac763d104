"""Reads plans, which are compared on one trace, from a TOML or JSON file.

    replica = "h200.toml"

    [[plan]]
    name = "affinity, 3 to 8"
    policy = "affinity"
    replicas = 3
    [plan.autoscaler]
    metric = "queue_seconds"
    target = 0.5
    max = 8

    [[plan.failure]]
    kind = "dies"
    at = 120

A plan may name a description of its own with `replica`, and change single fields of it in `[plan.change]`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trimodal.errors import SettingsError
from trimodal.plan.fleet.figures import ReplicaFigures, Seconds, checked, read_plain
from trimodal.plan.fleet.policies import Policy

MOST_REPLICAS = 10_000
Metric = Literal["queue_seconds", "ttft_burn_rate", "in_flight"]
Count = Annotated[int, Field(ge=1, le=MOST_REPLICAS)]


class Scaling(BaseModel):
    """An autoscaler as KEDA with a HorizontalPodAutoscaler behind it has.

    Every `polling_s` it wants replicas × metric / target, rounded up, unless the two are within `tolerance`
    of each other. Up: at once, by `up_share` or 4 replicas at most, whichever is more. Down: to the most that
    was wanted within the last `cooldown_s`, by `down_share` (1 replica at least) at a time.

    Attributes:
        metric: queue_seconds: mean wait of the requests that an engine took since the last look, and of
            those that still wait; ttft_burn_rate: share of first tokens since then that were later than the
            SLO's ttft_ms, over the share that `objective` allows; in_flight: requests a replica.
        warm: replicas that are started beforehand, wait without load, and are paid for, on top of `max`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    metric: Metric = "queue_seconds"
    target: float = Field(gt=0, le=1e6, allow_inf_nan=False)
    min: Count = 1
    max: Count
    polling_s: float = Field(15.0, ge=0.1, le=3600, allow_inf_nan=False)
    cooldown_s: Seconds = 300.0
    tolerance: float = Field(0.1, ge=0, lt=1)
    up_share: float = Field(1.0, gt=0, le=100)
    down_share: float = Field(0.1, gt=0, le=1)
    objective: float = Field(0.99, gt=0, lt=1)
    warm: int = Field(0, ge=0, le=MOST_REPLICAS)

    @model_validator(mode="after")
    def _in_order(self) -> Scaling:
        if self.min > self.max:
            raise ValueError(f"min {self.min} exceeds max {self.max}")
        return self


class Failure(BaseModel):
    """What happens at `at` seconds.

    dies: `replicas` of them end at once, and with `restart` come back after a cold start, nothing cached.
    rolling_restart: all replicas are drained and started anew, `replicas` at a time; what runs
    longer than `drain_s` is cut off.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["dies", "rolling_restart"]
    at: Seconds
    replicas: Count = 1
    restart: bool = True
    drain_s: Seconds = 60.0


class Plan(BaseModel):
    """One way to serve the trace. `retry`: what had no token yet is asked again elsewhere, as the gateway
    does; so is what a replica has no room for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=80)
    replica: ReplicaFigures
    replicas: Count = 1
    policy: Policy = "affinity"
    retry: bool = True
    autoscaler: Scaling | None = None
    failure: tuple[Failure, ...] = ()

    @model_validator(mode="after")
    def _within(self) -> Plan:
        scaler = self.autoscaler
        if scaler and not scaler.min <= self.replicas <= scaler.max:
            raise ValueError(f"replicas {self.replicas} is not within min {scaler.min} and max {scaler.max}")
        return self


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    replica: str | dict[str, Any] | None = None
    plan: tuple[dict[str, Any], ...] = Field(min_length=1, max_length=100)


def read_plans(file: Path) -> list[Plan]:
    """Reads all plans of a file. Raises: SettingsError naming the file and the field."""
    found = checked(file, read_plain(file), _File)
    plans = []
    for index, table in enumerate(found.plan):
        where = f"plan.{index}"
        values = dict(table)
        replica = values.pop("replica", found.replica)
        change = values.pop("change", {})
        if replica is None:
            raise SettingsError(f"{file}: {where}.replica: is missing, and there is none for all plans")
        if not isinstance(change, dict):
            raise SettingsError(f"{file}: {where}.change: a table is needed")
        values["replica"] = {**_described(file, where, replica), **change}
        plans.append(checked(file, values, Plan, where))
    names = [plan.name for plan in plans]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SettingsError(f"{file}: plan.name: {', '.join(twice)} is there twice")
    return plans


def _described(file: Path, where: str, replica: object) -> dict[str, Any]:
    """The fields of a replica: a table, or a file beside this one, which is checked first."""
    if isinstance(replica, dict):
        return replica
    if not isinstance(replica, str):
        raise SettingsError(f"{file}: {where}.replica: a file's name or a table is needed")
    beside = file.parent / replica
    plain = read_plain(beside)
    checked(beside, plain, ReplicaFigures)
    return plain
