"""Keeps API keys in a TOML file: hashed, each with its tenant, tier, models and limits.

[[key]]
name = "mobile app"
hash = "sha256:9f86d081…"       # of the key; the key itself is shown once, when it is made
tenant = "mobile"               # whose caches and limits of tiers it shares; without it: the key's name
tier = "premium"
models = ["llm", "vision"]      # empty: all
model_aliases = ["gpt-4o-mini=llm"]   # other names of models, besides the gateway's own
requests_per_minute = 600       # 0: no limit, as for those below
tokens_per_minute = 100000
audio_seconds_per_minute = 1200
images_per_minute = 60
max_streams = 32
operator = false                # may read /metrics, where all tenants are named
"""

from __future__ import annotations

import hashlib
import secrets
import time
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trimodal.errors import SettingsError
from trimodal.gateway.tables import WatchedFile, change_tables, locked, read_tables

PREFIX = "tm-"
# One control character made the whole file unreadable, so later revocations were not seen: TOML has none.
_PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f]*$"
_LOOK_S = 0.5  # a revoked key ends its streams within a second


ModelAlias = Annotated[str, Field(pattern=r"^[^=\s]{1,256}=[^=\s]{1,256}$")]
"""alias=model"""


class Key(BaseModel):
    """Who a caller is and what it may do."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=128, pattern=_PRINTABLE)
    hash: str = Field(default="", pattern=r"^(sha256:[0-9a-f]{64})?$")
    tenant: str = Field(default="", max_length=256, pattern=_PRINTABLE)
    tier: str = Field(default="", max_length=256, pattern=_PRINTABLE)
    models: tuple[str, ...] = ()
    model_aliases: tuple[ModelAlias, ...] = ()
    requests_per_minute: int = Field(default=0, ge=0)
    tokens_per_minute: int = Field(default=0, ge=0)
    audio_seconds_per_minute: int = Field(default=0, ge=0)
    images_per_minute: int = Field(default=0, ge=0)
    max_streams: int = Field(default=0, ge=0)
    operator: bool = False

    @model_validator(mode="before")
    @classmethod
    def _tenant_of_its_own(cls, values: Any) -> Any:
        """Two people who have a key each share no cache, unless the operator makes them one tenant."""
        if not isinstance(values, dict):
            return values
        return {**values, "tenant": values.get("tenant") or values.get("name", "")}

    def may_use(self, model: str) -> bool:
        return not self.models or model in self.models


ANYBODY = Key.model_construct(name="anybody", operator=True)
"""The caller where no keys are asked for: of no tenant and the default tier, without limits."""


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    key: tuple[Key, ...] = ()


def hashed(key: str) -> str:
    """The form that is kept. Keys are 256 random bits: a slow hash would protect nothing more."""
    return "sha256:" + hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def read_keys(file: Path) -> list[Key]:
    """Reads all keys of a file. Raises: SettingsError naming the file and the field."""
    keys = read_tables(file, _File, Key).key
    names = [key.name for key in keys]
    if double := {name for name in names if names.count(name) > 1}:
        raise SettingsError(f"{file}: two keys are named '{min(double)}'")
    if missing := [key.name for key in keys if not key.hash]:
        raise SettingsError(f"{file}: key '{missing[0]}' has no hash")
    return list(keys)


def _change(file: Path, name: str, key: Key | None) -> None:
    comment = "API keys of `trimodal gateway`, hashed. Edit freely: a running gateway reads it again."
    row = key.model_dump(mode="json", exclude_defaults=True) if key else None
    change_tables(file, comment, "key", ("name",), {(name,): row})


def add_key(file: Path, key: Key) -> str:
    """Adds a new key to the file and returns it: the only time that it can be read."""
    with locked(file):
        keys = read_keys(file) if file.exists() else []
        if any(other.name == key.name for other in keys):
            raise SettingsError(f"{file}: a key named '{key.name}' exists already")
        secret = PREFIX + secrets.token_urlsafe(32)
        _change(file, key.name, key.model_copy(update={"hash": hashed(secret)}))
        return secret


def revoke_key(file: Path, name: str) -> None:
    """Removes a key from the file."""
    with locked(file):
        if not any(key.name == name for key in read_keys(file)):
            raise SettingsError(f"{file}: no key is named '{name}'")
        _change(file, name, None)


class KeyRing:
    """Finds the key that a caller shows, in a file that may change meanwhile. Of one event loop."""

    def __init__(self, file: Path) -> None:
        self._file = WatchedFile(file, lambda file: {key.hash: key for key in read_keys(file)})
        self._looked = time.monotonic()

    def find(self, secret: str) -> Key | None:
        """The key of this text, or None."""
        return self._keys().get(hashed(secret))

    def holds(self, key: Key) -> bool:
        """Whether a key that was found is still in the file, with whatever limits."""
        return key.hash in self._keys()

    def _keys(self) -> dict[str, Key]:
        now = time.monotonic()
        if now - self._looked >= _LOOK_S:
            self._looked = now
            self._file.changed()
        return self._file.contents
