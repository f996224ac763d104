"""Reads service tiers from a TOML file: what requests of a tier may use, and how urgent they are.

    default = "standard"

    [tier.premium]
    priority = 10
    ttft_deadline_ms = 500

Tiers are not authenticated: a gateway in front decides who may name which.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trimodal.errors import InvalidArgument, SettingsError
from trimodal.settings import describe, read_toml, shorten

Trim = Literal["refuse", "oldest_turns"]


class Tier(BaseModel):
    """One class of service. Limits that are left out are the model's own; a bound of 0 is none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    priority: int = Field(0, ge=-100, le=100)  # higher goes first; a request may lower its own
    max_prompt_tokens: int | None = Field(None, ge=1)
    max_output_tokens: int | None = Field(None, ge=1)
    kv_share: float = Field(1.0, gt=0, le=1)  # of the KV blocks, for all its requests together
    ttft_deadline_ms: int = Field(0, ge=0, le=3_600_000)  # to the first text; 0: none
    deadline_ms: int = Field(0, ge=0, le=86_400_000)  # to the end of the answer; 0: none
    itl_bound_ms: float = Field(0, ge=0)  # gap that prefill of others may make; 0: none
    trim: Trim = "refuse"  # what a chat that is too long loses; a request may say (`truncation`)


class Tiers(BaseModel):
    """All tiers of one model, and the one of requests that name none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    default: str = "standard"
    tier: dict[str, Tier] = Field(default_factory=lambda: {"standard": Tier()})

    @model_validator(mode="after")
    def _has_its_default(self) -> Tiers:
        if self.default not in self.tier:
            raise ValueError(f"default '{self.default}' is none of the tiers {', '.join(self.tier)}")
        return self

    def named(self, name: str) -> Tier:
        """The tier called `name`; "" is the default one.

        Raises:
            InvalidArgument: there is none.
        """
        tier = self.tier.get(name or self.default)
        if tier is None:
            raise InvalidArgument(f"tier is {shorten(repr(name))}: one of {', '.join(self.tier)} is needed")
        return tier


def read_tiers(path: Path) -> Tiers:
    """The tiers in a TOML file. Raises SettingsError: names the file and the key."""
    try:
        values: dict[str, Any] = read_toml(path)
        return Tiers.model_validate(values)
    except OSError as error:
        raise SettingsError(f"parameter 'tiers': {path.name} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        inside = all(len(problem["loc"]) > 2 for problem in error.errors())
        raise SettingsError(f"{path.name}: {describe(error, Tier if inside else Tiers)}") from None
    except (ValueError, RecursionError) as error:  # not UTF-8, or no TOML
        raise SettingsError(f"{path.name}: not valid TOML: {error}") from None
