"""Reads fleets, which are compared on the same requests, and what one replica can do, from TOML files.

    replica = "h200.toml"

    [[plan]]
    name = "affinity"
    policy = "affinity"
    replicas = [4, 6, 8]

    [[plan]]
    name = "in turn"
    policy = "round_robin"
    replicas = 6

Of a replica (`docs/fleet/h100.toml`); names are those of the llm model's parameters where there is one:

    step_ms = [[1, 12.0], [8, 14.5], [64, 31.0]]   # sequences that decode, milliseconds of a step
    prefill_us = 45.0                              # a prompt token adds so much to its step
    num_kv_blocks = 4096
    price_per_hour = 3.5
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trimodal.errors import SettingsError
from trimodal.gateway.tables import read_tables
from trimodal.settings import describe

_MOST = 1 << 24
Policy = Literal["round_robin", "least_connections", "affinity"]
POLICIES: tuple[Policy, ...] = get_args(Policy)


class ReplicaFigures(BaseModel):
    """One replica. A step's time lies on the line between two batch sizes; beyond the last one it grows on.

    Attributes:
        overhead_ms: of a request outside the engine: gateway, Triton, network.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    step_ms: tuple[tuple[int, float], ...] = Field(min_length=1, max_length=4096)
    prefill_us: float = Field(ge=0, le=1e6, allow_inf_nan=False)
    overhead_ms: float = Field(0, ge=0, le=1e5, allow_inf_nan=False)
    max_num_seqs: int = Field(256, ge=1, le=4096)
    max_num_batched_tokens: int = Field(8192, ge=1, le=_MOST)
    num_kv_blocks: int = Field(ge=4, le=_MOST)
    block_tokens: int = Field(32, ge=1, le=4096)
    max_queue: int = Field(256, ge=0, le=_MOST)
    price_per_hour: float = Field(0, ge=0, le=1e6, allow_inf_nan=False)

    @model_validator(mode="after")
    def _fits_together(self) -> ReplicaFigures:
        sizes = [size for size, _ in self.step_ms]
        if sizes != sorted(set(sizes)) or sizes[0] < 1:
            raise ValueError("step_ms needs batch sizes from 1 up, each larger than the one before")
        if any(not 0 < ms <= 1e6 for _, ms in self.step_ms):
            raise ValueError("step_ms needs times above 0 and at most 1000000 ms")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens {self.max_num_batched_tokens} must be at least max_num_seqs "
                f"{self.max_num_seqs}: every sequence decodes in every step"
            )
        return self

    def step_times(self) -> list[float]:
        """Seconds of a step with 0, 1, … max_num_seqs sequences; a step without one costs as with one."""
        sizes, times = zip(*self.step_ms, strict=True)
        batches = np.maximum(1, np.arange(self.max_num_seqs + 1))
        found = np.interp(batches, sizes, times)
        if len(sizes) > 1:
            slope = (times[-1] - times[-2]) / (sizes[-1] - sizes[-2])
            found = np.maximum(times[0] / 10, found + slope * np.maximum(0, batches - sizes[-1]))
        return [float(ms) / 1e3 for ms in found]

    def blocks(self, prompt: int, output: int) -> int:
        """KV blocks that are reserved for a whole request."""
        return -(-(prompt + output) // self.block_tokens)


class FleetSpec(BaseModel):
    """One way to serve the requests: replicas and their balancer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=80)
    replica: ReplicaFigures
    replicas: int = Field(1, ge=1, le=10_000)
    policy: Policy = "affinity"


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    replica: str
    plan: tuple[dict[str, Any], ...] = Field(min_length=1, max_length=100)


def read_specs(file: Path) -> list[FleetSpec]:
    """Reads all plans of a file, one for each number of replicas. Raises: SettingsError naming the field."""
    found = read_tables(file, _File, _File)
    figures = read_tables(file.parent / found.replica, ReplicaFigures, ReplicaFigures)
    specs = []
    for index, table in enumerate(found.plan):
        counts = table.get("replicas", 1)
        several = isinstance(counts, list) and bool(counts)
        for count in counts if several else [counts]:
            name = f"{table.get('name', '')} {count}" if several else table.get("name", "")
            values = {**table, "name": name, "replicas": count, "replica": figures}
            try:
                specs.append(FleetSpec.model_validate(values))
            except ValidationError as error:
                where = f"{file}: plan {index + 1}"
                raise SettingsError(f"{where}: {describe(error, FleetSpec)}") from None
    return specs
