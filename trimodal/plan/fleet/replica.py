"""Reads what one replica can do: measured step times, limits and price.

    step_ms = [[1, 12.0], [8, 14.5], [64, 31.0]]   # sequences that decode, milliseconds of a step
    prefill_us = 45.0                              # a prompt token adds so much to its step
    num_kv_blocks = 4096
    price_per_hour = 3.5

`trimodal plan replica` writes such a file from what `trimodal bench llm` measured. Names are those of the
llm model's parameters where there is one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trimodal.errors import SettingsError
from trimodal.settings import describe

Model = TypeVar("Model", bound=BaseModel)
_MOST = 1 << 24


class ReplicaFigures(BaseModel):
    """One replica. A step's time lies on the line between two batch sizes; beyond the last one it grows on.

    Attributes:
        overhead_ms: of a request outside the engine: gateway, Triton, network.
        prefix_cache_blocks: KV blocks that ended prompts may keep; none given: all, 0: nothing is kept.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    step_ms: tuple[tuple[int, float], ...] = Field(min_length=1, max_length=4096)
    prefill_us: float = Field(ge=0, le=1e6, allow_inf_nan=False)
    overhead_ms: float = Field(0, ge=0, le=1e5, allow_inf_nan=False)
    max_num_seqs: int = Field(256, ge=1, le=4096)
    max_num_batched_tokens: int = Field(8192, ge=1, le=_MOST)
    num_kv_blocks: int = Field(ge=4, le=_MOST)
    block_tokens: int = Field(32, ge=1, le=4096)
    prefix_cache_blocks: int | None = Field(None, ge=0, le=_MOST)
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

    @property
    def kept_blocks(self) -> int:
        """KV blocks of the prefix cache."""
        return self.num_kv_blocks if self.prefix_cache_blocks is None else self.prefix_cache_blocks


def checked(file: Path, values: Any, cls: type[Model], where: str = "") -> Model:
    """The values as `cls`. Raises: SettingsError naming the file and every field that is wrong."""
    try:
        return cls.model_validate(values)
    except ValidationError as error:
        raise SettingsError(f"{file}: {where and where + ': '}{describe(error, cls)}") from None
