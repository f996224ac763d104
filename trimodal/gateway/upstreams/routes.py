"""Shares requests out among the versions of a model, as a TOML file says that a running gateway reads again.

[[route]]
model = "llm"
version = "2"
percent = 5.0                   # those of a model make 100 together
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trimodal.client.transports.base import Request
from trimodal.errors import SettingsError
from trimodal.gateway.tables import change_tables, locked, read_tables
from trimodal.gateway.upstreams.affinity import beginning
from trimodal.settings import describe


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(pattern=r"^[^\s@=]{1,256}$")
    version: str = Field(pattern=r"^[1-9]\d{0,17}$")
    percent: float = Field(gt=0, le=100)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    route: tuple[_Entry, ...] = ()


Shares = Mapping[str, float]
"""Version → percent."""
ASSISTANT = "assistant"
"""The model that asks others in the versions that its request's parameter `versions` names."""
# What it asks, and the inputs that it asks them for; none: always.
_ASKED = {"llm": (), "speech": ("audio", "audio_int16"), "vision": ("image",)}


def read_routes(file: Path) -> dict[str, Shares]:
    """Reads model → shares; none where there is no file. Raises: SettingsError naming file and field."""
    return _checked(file, read_tables(file, _File, _Entry, missing=_File()).route)


def _checked(file: Path, entries: Iterable[_Entry]) -> dict[str, Shares]:
    routes: dict[str, dict[str, float]] = {}
    for entry in entries:
        shares = routes.setdefault(entry.model, {})
        if entry.version in shares:
            raise SettingsError(f"{file}: version {entry.version} of {entry.model} is there twice")
        shares[entry.version] = entry.percent
    for model, shares in routes.items():
        if not math.isclose(total := sum(shares.values()), 100.0, abs_tol=1e-6):
            raise SettingsError(f"{file}: the versions of {model} have {total:g} % together: 100 are needed")
    return dict(routes)


def set_route(file: Path, model: str, given: Shares) -> Shares:
    """Writes the shares of one model, and returns them; of none given it has no route any more.

    What `given` leaves goes to the version that had a share before, where that is one alone.

    Raises: SettingsError: it is not clear whose the rest is.
    """
    with locked(file):
        routes = read_routes(file)
        shares = dict(given)
        rest = 100.0 - sum(shares.values())
        before = routes.pop(model, {})
        others = [version for version in before if version not in shares]
        if shares and rest > 1e-6:
            if len(others) != 1:
                has = f"versions {', '.join(others)} have" if others else "no other version has"
                raise SettingsError(f"whose are the other {rest:g} % of {model}? {has} a share: name it, too")
            shares[others[0]] = rest
        if shares:
            routes[model] = {version: share for version, share in shares.items() if share}
        rows = [
            {"model": name, "version": version, "percent": percent}
            for name, versions in sorted(routes.items())
            for version, percent in sorted(versions.items())
        ]
        try:
            _checked(file, _File.model_validate({"route": rows}).route)
        except ValidationError as error:
            raise SettingsError(describe(error, _Entry)) from None
        comment = "Routes of `trimodal gateway --routes`. Edit freely: a running gateway reads it again."
        changes: dict[tuple[object, ...], dict[str, float] | None] = {
            (model, version): {"percent": shares[version]} if shares.get(version) else None
            for version in sorted({*before, *shares})
        }
        change_tables(file, comment, "route", ("model", "version"), changes)
        return routes.get(model, {})


def version_for(shares: Shares, model: str, key: bytes, loaded: Collection[str] | None = None) -> str:
    """The version for what this key stands for: always the same one, until its share goes to another.

    Versions stand in their order, so a newer one that grows keeps those that it has. The share of one that
    is not `loaded` is the others', as long as there are any; None: all are.
    """
    version = _drawn(shares, model, key)
    left = {one: share for one, share in shares.items() if loaded is None or one in loaded}
    if version in left or not left:
        return version
    total = sum(left.values())
    return _drawn({one: share * 100.0 / total for one, share in left.items()}, model, b"not loaded " + key)


def _drawn(shares: Shares, model: str, key: bytes) -> str:
    digest = hashlib.blake2b(model.encode() + b"\0" + key, digest_size=8).digest()
    point = int.from_bytes(digest, "big") / 2**64 * 100.0
    ordered = sorted(shares, key=int)
    for version in ordered[:-1]:
        point -= shares[version]
        if point < 0:
            return version
    return ordered[-1]


def models_asked(request: Request) -> list[str]:
    """The models that the assistant asks in versions that a request names; []: of another model's."""
    if request.name != ASSISTANT:
        return []
    return [
        model
        for model, inputs in _ASKED.items()
        if not inputs or any(name in request.inputs for name in inputs)
    ]


def key_of(request: Request) -> bytes:
    """What stays together: a tenant's requests; without one, a stream of speech, or what begins alike."""
    tenant = request.inputs.get("tenant")
    if tenant is not None and tenant.size and tenant.reshape(-1)[0]:
        return bytes(tenant.reshape(-1)[0])
    if "sequence_id" in request.parameters:
        return str(request.parameters["sequence_id"]).encode()
    first = next(iter(request.inputs.values()), None)
    if (begins := beginning(request)) or first is None or not first.size:
        return begins
    return bytes(first.reshape(-1)[0]) if first.dtype == np.object_ else first.tobytes()
