"""Keeps the servers behind a gateway in a TOML file; a running gateway reads it again when it changes.

[[upstream]]
address = "10.0.0.1:8001"
drain = true                    # gets no new requests
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from trimodal.client.transports.address import read_address
from trimodal.errors import SettingsError
from trimodal.gateway.tables import change_tables, locked, read_tables


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str
    drain: bool = False

    @field_validator("address")
    @classmethod
    def _is_one(cls, address: str) -> str:
        read_address(address)  # as the client will
        return address


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    upstream: tuple[_Entry, ...] = Field(min_length=1)


def read_upstreams(file: Path) -> dict[str, bool]:
    """Reads address → whether it is drained. Raises: SettingsError naming the file and the field."""
    entries = read_tables(file, _File, _Entry).upstream
    draining = {entry.address: entry.drain for entry in entries}
    if len(draining) < len(entries):
        raise SettingsError(f"{file}: an address is there twice")
    return draining


def set_drain(file: Path, address: str, drain: bool) -> None:
    """Drains a server of the file, or takes it into use again. Raises: SettingsError when it is not there."""
    with locked(file):
        draining = read_upstreams(file)
        if address not in draining:
            raise SettingsError(f"{file}: there is no upstream {address}: {', '.join(draining)}")
        comment = "Servers of `trimodal gateway --upstreams`. Edit freely: a running gateway reads it again."
        change_tables(file, comment, "upstream", ("address",), {(address,): {"drain": drain or None}})
