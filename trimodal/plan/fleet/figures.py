"""Reads what one replica can do: measured step times, limits, cold start and price.

    step_ms = [[1, 12.0], [8, 14.5], [64, 31.0]]   # sequences that decode, milliseconds of a step
    prefill_us = 45.0                              # a prompt token adds so much to its step
    num_kv_blocks = 4096
    price_per_hour = 3.5

`trimodal plan replica` writes such a file from what `trimodal bench llm` measured. Names are those of the
llm model's parameters where there is one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trimodal.errors import SettingsError
from trimodal.settings import shorten

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Model = TypeVar("Model", bound=BaseModel)
Seconds = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
_MOST = 1 << 24


class ReplicaFigures(BaseModel):
    """One replica. A step's time lies on the line between two batch sizes; beyond the last one it grows on.

    Attributes:
        overhead_ms: of a request outside the engine: gateway, Triton, network.
        prefix_cache_blocks: KV blocks that ended prompts may keep; none given: all, 0: nothing is kept.
        cold_start_s: from the order to the first request; warm_start_s: of a replica of the warm pool.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    step_ms: tuple[tuple[int, float], ...] = Field(min_length=1, max_length=4096)
    prefill_us: float = Field(ge=0, le=1e6, allow_inf_nan=False)
    overhead_ms: float = Field(0, ge=0, le=1e5, allow_inf_nan=False)
    max_num_seqs: int = Field(256, ge=1, le=4096)
    max_num_batched_tokens: int = Field(8192, ge=1, le=_MOST)
    enable_chunked_prefill: bool = True
    num_kv_blocks: int = Field(ge=4, le=_MOST)
    block_tokens: int = Field(32, ge=1, le=4096)
    prefix_cache_blocks: int | None = Field(None, ge=0, le=_MOST)
    max_queue: int = Field(256, ge=0, le=_MOST)
    cold_start_s: Seconds = 60.0
    warm_start_s: Seconds = 1.0
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
        times = [_interpolate(self.step_ms, size) / 1e3 for size in range(1, self.max_num_seqs + 1)]
        return [times[0], *times]

    def blocks(self, prompt: int, output: int) -> int:
        """KV blocks that are reserved for a whole request."""
        return -(-(prompt + output) // self.block_tokens)

    @property
    def kept_blocks(self) -> int:
        """KV blocks of the prefix cache."""
        return self.num_kv_blocks if self.prefix_cache_blocks is None else self.prefix_cache_blocks


def read_replica(file: Path) -> ReplicaFigures:
    """Reads the description of a replica, TOML or JSON. Raises: SettingsError naming file and field."""
    return checked(file, read_plain(file), ReplicaFigures)


def read_plain(file: Path) -> dict[str, Any]:
    """The tables of a TOML or a JSON file. Raises: SettingsError naming the file and the line."""
    try:
        text = file.read_text(encoding="utf-8-sig")
        found = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise SettingsError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    except json.JSONDecodeError as error:
        raise SettingsError(f"{file}: line {error.lineno}: {error.msg}") from None
    except ValueError as error:  # not UTF-8, or no TOML, which names the line itself
        raise SettingsError(f"{file}: {error}") from None
    except RecursionError:
        raise SettingsError(f"{file}: nested too deeply") from None
    if not isinstance(found, dict):
        raise SettingsError(f"{file}: an object is needed, not a {type(found).__name__}")
    return found


def checked(file: Path, values: Any, cls: type[Model], where: str = "") -> Model:
    """The values as `cls`. Raises: SettingsError naming the file and every field that is wrong."""
    try:
        return cls.model_validate(values)
    except ValidationError as error:
        problems = []
        for one in error.errors():
            field = ".".join(str(part) for part in (where, *one["loc"]) if str(part)) or "the file"
            message = one["msg"].removeprefix("Value error, ")
            if one["type"] == "extra_forbidden":
                message = f"unknown field (known: {', '.join(cls.model_fields)})"
            elif one["type"] == "missing":
                message = "is missing"
            elif one["loc"]:
                message = f"{shorten(repr(one['input']))}: {message}"
            problems.append(f"{field}: {message}")
        raise SettingsError(f"{file}: {'; '.join(problems)}") from None


def _interpolate(points: tuple[tuple[int, float], ...], size: int) -> float:
    """Time at a batch size: on the line between its neighbours, before the first one as there."""
    if size <= points[0][0] or len(points) == 1:
        return points[0][1]
    after = next((index for index, (at, _) in enumerate(points) if at >= size), len(points) - 1)
    (left, low), (right, high) = points[after - 1], points[after]
    return max(points[0][1] / 10, low + (high - low) * (size - left) / (right - left))
