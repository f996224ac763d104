"""Reads where a Triton is: host:port of its gRPC endpoint, with the port of its health page."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ADDRESS = re.compile(
    r"(?:(?P<scheme>grpcs?)://)?"
    r"(?P<endpoint>(?P<host>[^:/\[\]\s]+|\[[^\]/\s]+\]):(?P<port>\d+))(?::(?P<health>\d+))?"
)


@dataclass(frozen=True)
class Address:
    """Where a server is; `endpoint`: host:port; `health_port`: None: it was not told."""

    endpoint: str
    host: str
    health_port: int | None
    tls: bool


def read_address(text: str) -> Address:
    """Reads "host:port" or "host:port:health-port", "grpcs://" in front for TLS. Raises: ValueError."""
    match = _ADDRESS.fullmatch(text) if isinstance(text, str) else None
    if not match:
        raise ValueError("host:port of Triton's gRPC endpoint is needed")
    if any(int(port) > 65_535 for port in (match["port"], match["health"] or "0")):
        raise ValueError("a port is at most 65535")
    health_port = int(match["health"]) if match["health"] else None
    return Address(match["endpoint"], match["host"].strip("[]"), health_port, match["scheme"] == "grpcs")
