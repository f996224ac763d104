"""Runs HAProxy with deploy/haproxy/fleet.cfg before servers on any ports."""

from __future__ import annotations

import csv
import hashlib
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.haproxy import ROOT, haproxy
from trimodal.errors import ServerError
from trimodal.server import ports

CONFIG = ROOT / "deploy" / "haproxy" / "fleet.cfg"
DRAIN = ROOT / "deploy" / "haproxy" / "drain"
KEY = "a-key-of-this-bench"
SERVERS = ("serve-1", "serve-2", "serve-3")
KINDS = ("GRPC", "HTTP", "HEALTH", "GATEWAY")
_NOBODY = "127.0.0.1:9"
_BOUND_S = 30.0


@dataclass(frozen=True)
class Proxy:
    """Where it listens: host:port, and the path of its socket."""

    http: str
    grpc: str
    gateway: str
    metrics: str
    socket: str

    def drain(self, server: str, *options: str) -> tuple[int, str]:
        """Runs deploy/haproxy/drain: its exit code and what it says."""
        command = [sys.executable, str(DRAIN), "--socket", self.socket, server, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_BOUND_S + 90)
        return done.returncode, done.stderr

    def page(self) -> str:
        """Its own metrics. Raises: OSError."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=_BOUND_S) as page:
            return str(page.read().decode())

    def rows(self) -> list[dict[str, str]]:
        """What it counts of each server in each backend. Raises: OSError."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_BOUND_S)
            connection.connect(self.socket)
            connection.sendall(b"show stat\n")
            told = b"".join(iter(lambda: connection.recv(65_536), b"")).decode()
        table = csv.DictReader(told.removeprefix("# ").splitlines())
        return [row for row in table if row["svname"] not in ("FRONTEND", "BACKEND")]

    def counted(self, column: str, backends: str = "grpc_") -> dict[str, int]:
        """Server → a column of `show stat`, as stot (requests) or scur (those running), over its backends."""
        found = dict.fromkeys(SERVERS, 0)
        for row in self.rows():
            if row["pxname"].startswith(backends) and row["svname"] in found:
                found[row["svname"]] += int(row[column] or 0)
        return found

    def settle(self, up: int) -> None:
        """Waits until so many servers are up and the others down. Raises: ServerError."""
        deadline = time.monotonic() + _BOUND_S
        while True:
            states = [row["status"] for row in self.rows() if row["pxname"] == "health"]
            if sorted(state.split()[0] for state in states) == ["DOWN"] * (len(states) - up) + ["UP"] * up:
                return
            if time.monotonic() > deadline:
                raise ServerError(f"the balancer has its servers as {states}, {up} should be up")
            time.sleep(0.1)


@contextmanager
def running(folder: Path, addresses: Mapping[str, str]) -> Iterator[Proxy]:
    """HAProxy with its files in `folder`; skips the test where there is none.

    Args:
        addresses: TRIMODAL_FLEET_… → host:port; nobody is at those left out.
    """
    (folder / "triton.keys").write_text(hashlib.sha256(KEY.encode()).hexdigest() + "\n")
    chosen = ports.choose("127.0.0.1", dict.fromkeys(("http", "grpc", "gateway", "metrics"), 0))
    http, grpc, gateway, metrics = (f"127.0.0.1:{port}" for port in chosen.values())
    proxy = Proxy(http, grpc, gateway, metrics, str(folder / "fleet.sock"))
    environment = {f"TRIMODAL_FLEET_{kind}_{number}": _NOBODY for kind in KINDS for number in (1, 2, 3)}
    environment |= {
        "TRIMODAL_PROXY_KEYS": str(folder / "triton.keys"),
        "TRIMODAL_PROXY_HTTP_PORT": str(chosen["http"]),
        "TRIMODAL_PROXY_GRPC_PORT": str(chosen["grpc"]),
        "TRIMODAL_FLEET_GATEWAY_PORT": str(chosen["gateway"]),
        "TRIMODAL_FLEET_METRICS_PORT": str(chosen["metrics"]),
        "TRIMODAL_FLEET_SOCKET": proxy.socket,
        **addresses,
    }
    with haproxy(CONFIG, folder / "haproxy.log", environment, lambda: answers(proxy)):
        yield proxy


def answers(proxy: Proxy) -> bool:
    try:
        return bool(proxy.page())
    except OSError:
        return False
