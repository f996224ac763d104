"""Declares what the gateway's operator may set."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from trimodal.errors import SettingsError
from trimodal.gateway.keys import ModelAlias
from trimodal.settings import Settings

# As browsers write one: of an app or an extension too. "*": any.
_ORIGIN = r"^(\*|[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[\w.-]+)(:[0-9]+)?)$"

_DAY_S = 86_400.0  # no timer takes inf: each request failed


class GatewaySettings(Settings):
    """Where it listens, whom it lets in, and its bounds. Each is an option of `trimodal gateway`."""

    upstream: tuple[str, ...] = Field(default=("127.0.0.1:8001",), min_length=1)
    upstreams: Path | None = None
    routes: Path | None = None
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65_535)
    keys: Path | None = None
    without_keys: bool = False
    cors_origins: tuple[Annotated[str, Field(pattern=_ORIGIN)], ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    log_requests: float = Field(default=1.0, ge=0, le=1)  # share of those that did not fail; 0: none at all
    model_aliases: tuple[ModelAlias, ...] = ()
    operator_key: str = ""  # of the servers behind: for adapters, sleep, and which versions were unloaded
    responses: str = "memory"
    max_responses: int = Field(default=10_000, ge=1, le=1_000_000)
    early_waste: float = Field(default=0.5, ge=0, le=1)  # share of early answers' tokens; 0: no such
    max_body_bytes: int = Field(default=32 << 20, ge=1024)
    header_timeout_s: float = Field(default=10.0, gt=0, le=_DAY_S)
    body_timeout_s: float = Field(default=60.0, gt=0, le=_DAY_S)
    max_connections: int = Field(default=0, ge=0, le=1 << 20)  # 0: as many as the descriptors leave
    silence_s: float = Field(default=60.0, gt=0, le=_DAY_S)
    drain_timeout_s: float = Field(default=30.0, ge=0, le=_DAY_S)

    @model_validator(mode="after")
    def _nobody_unasked(self) -> GatewaySettings:
        """Beyond this machine nobody is let in without a key, unless the operator says so."""
        if self.keys is None and not self.without_keys and not is_loopback(self.host):
            raise SettingsError(
                f"host '{self.host}' can be reached from other machines: name a file of --keys "
                "(`trimodal keys add` makes one), or say --without-keys"
            )
        return self


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address to listen on."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
