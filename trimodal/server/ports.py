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
    """Another process listens there; `problem` says so without the option that chooses another port."""

    def __init__(self, problem: str, flag: str) -> None:
        super().__init__(f"{problem}: choose another with {flag} (0 picks a free one)")
        self.problem = problem


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


def listen(host: str, port: int, flag: str = "--port") -> socket.socket:
    """A socket that listens there.

    Raises: ServerError when the port is taken or not ours, with the `flag` of others, or it is no address.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        # Python (3.11) adds the address once more to what the system says.
        told = (error.strerror or str(error)).partition(" (while attempting")[0].lower()
        problem = f"cannot listen on {host}:{port}: {told}"
        raise _refusal(error, problem, flag) from None


def _refusal(error: OSError, problem: str, flag: str) -> ServerError:
    """The problem, and what to do where another port would help."""
    if error.errno == errno.EADDRINUSE:
        return PortInUse(problem, flag)
    if error.errno == errno.EACCES:
        problem += f": low ports are the administrator's; choose a higher one with {flag}"
    return ServerError(problem)


def _probe(host: str, port: int, flag: str) -> None:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        problem = f"--host {host}, port {port}: {(error.strerror or '').lower()}"
        if error.errno == errno.EADDRINUSE:
            problem = f"port {port} on {host} is in use"
        raise _refusal(error, problem, flag) from None


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
