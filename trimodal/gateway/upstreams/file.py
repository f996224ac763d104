"""Keeps the servers behind a gateway in a TOML file; a running gateway reads it again when it changes.

[[upstream]]
address = "10.0.0.1:8001"
drain = true                    # gets no new requests
"""

from __future__ import annotations

import logging
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from trimodal.errors import SettingsError
from trimodal.gateway.tables import read_tables, stamp, write_tables

logger = logging.getLogger(__name__)


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str = Field(pattern=r"^[^\s/]+:\d+$|^grpcs?://[^\s/]+:\d+$")
    drain: bool = False


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    upstream: tuple[_Entry, ...] = Field(min_length=1)


def read_upstreams(file: Path) -> dict[str, bool]:
    """Reads address → whether it is drained. Raises: SettingsError naming the file and the field."""
    found = read_tables(file, _File, _Entry).upstream
    draining = {entry.address: entry.drain for entry in found}
    if len(draining) < len(found):
        raise SettingsError(f"{file}: an address is there twice")
    return draining


def set_drain(file: Path, address: str, drain: bool) -> None:
    """Drains a server of the file, or takes it into use again. Raises: SettingsError when it is not there."""
    draining = read_upstreams(file)
    if address not in draining:
        raise SettingsError(f"{file}: there is no upstream {address}: {', '.join(draining)}")
    draining[address] = drain
    rows = [{"address": one, **({"drain": True} if drains else {})} for one, drains in draining.items()]
    comment = "Servers of `trimodal gateway --upstreams`. Edit freely: a running gateway reads it again."
    write_tables(file, comment, "upstream", rows)


class UpstreamsFile:
    """Tells what has changed in the file. One that cannot be read leaves everything as it was."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._changed = stamp(file)
        self.draining = read_upstreams(file)

    def changed(self) -> bool:
        """Reads the file again if it is another one; whether `draining` is new."""
        changed = stamp(self._file)
        if changed == self._changed:
            return False
        self._changed = changed
        try:
            self.draining = read_upstreams(self._file)
        except SettingsError as error:
            logger.error("the upstreams stay as they were: %s", error)
            return False
        return True
