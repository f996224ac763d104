"""Checks the ports that were asked for and picks free ones."""

from __future__ import annotations

import contextlib
import errno
import random
import socket
from collections.abc import Mapping
from pathlib import Path

from trimodal.errors import ServerError

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
BACKLOG = 2048  # connections that may wait to be taken


class PortInUse(ServerError):
    """Another process listens there."""


def bracketed(host: str) -> str:
    """A host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def choose(host: str, wanted: Mapping[str, int]) -> dict[str, int]:
    """Flag → port, every 0 replaced by a free one, all distinct. Raises: ServerError naming port and flag."""
    chosen: dict[str, int] = {}
    for flag, port in wanted.items():
        if not 0 <= port <= 65535:
            raise ServerError(f"{flag} {port} is out of range: 0 (pick a free one) to 65535")
        if port:
            if port in chosen.values():
                raise ServerError(f"port {port} is given twice: {flag} needs one of its own")
            _probe(host, port, flag)
            chosen[flag] = port
    for flag in wanted:
        if flag not in chosen:
            chosen[flag] = _free(host, set(chosen.values()))
    return {flag: chosen[flag] for flag in wanted}


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises: ServerError when the port is taken or it is no address."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        told = (error.strerror or str(error)).lower()
        raise ServerError(f"cannot listen on {host}:{port}: {told}") from None


def _probe(host: str, port: int, flag: str) -> None:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"port {port} on {host} is in use: choose another with {flag} (0 picks a free one)"
            ) from None
        raise ServerError(f"--host {host}, port {port}: {(error.strerror or '').lower()}") from None


def _free(host: str, taken: set[int]) -> int:
    # Below the range from which the kernel hands out ports: models load between this choice and
    # Triton's own bind, and until then no outgoing connection can land on these.
    try:
        low = int(RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        low = 32768
    candidates = set(range(min(10240, max(1024, low // 2)), low)) - taken
    for port in random.sample(sorted(candidates), k=min(200, len(candidates))):
        with contextlib.suppress(PortInUse):
            _probe(host, port, "")
            return port
    raise ServerError(f"no free port found on {host}")
