"""Reads fleets, which are compared on the same requests, from a TOML file.

    replica = "h200.toml"

    [[plan]]
    name = "affinity"
    policy = "affinity"
    replicas = [4, 6, 8]

    [[plan]]
    name = "in turn"
    policy = "round_robin"
    replicas = 6

A plan may name a file of its own with `replica`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from trimodal.errors import SettingsError
from trimodal.gateway.tables import read_tables
from trimodal.plan.fleet.balancers import Policy
from trimodal.plan.fleet.replica import ReplicaFigures, checked

MOST_REPLICAS = 10_000
Count = Annotated[int, Field(ge=1, le=MOST_REPLICAS)]


class FleetSpec(BaseModel):
    """One way to serve the requests: replicas and their balancer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=80)
    replica: ReplicaFigures
    replicas: Count = 1
    policy: Policy = "affinity"


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    replica: str = ""
    plan: tuple[dict[str, Any], ...] = Field(min_length=1, max_length=100)


def read_specs(file: Path) -> list[FleetSpec]:
    """Reads all plans of a file, one for each number of replicas. Raises: SettingsError naming the field."""
    found = read_tables(file, _File, _File)
    specs = []
    for index, table in enumerate(found.plan):
        where, values = f"plan {index + 1}", dict(table)
        name = values.get("replica", found.replica)
        if not isinstance(name, str) or not name:
            raise SettingsError(f'{file}: {where}: replica = "FILE" is needed, here or for all plans')
        beside = file.parent / name
        values["replica"] = read_tables(beside, ReplicaFigures, ReplicaFigures)
        counts = values.get("replicas", 1)
        several = isinstance(counts, list)
        for count in counts if several else [counts]:
            named = f"{values.get('name', '')} {count}" if several else values.get("name", "")
            specs.append(checked(file, {**values, "name": named, "replicas": count}, FleetSpec, where))
    return specs
