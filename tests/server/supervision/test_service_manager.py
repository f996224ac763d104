"""What systemd hears: over a real socket."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from trimodal.server.supervision import service_manager as module
from trimodal.server.supervision.service_manager import ServiceManager


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_states_are_told(tmp_path: Path, kind: str) -> None:
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(name if kind == "path" else "\0" + name)
        end.settimeout(5.0)
        manager = ServiceManager({"NOTIFY_SOCKET": name if kind == "path" else "@" + name})
        manager.tell(READY="1", STATUS="serving")
        assert end.recv(1000) == b"READY=1\nSTATUS=serving"


def test_a_sign_of_life_comes_twice_as_often_as_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(name)
        end.setblocking(False)
        manager = ServiceManager({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "60000000"})
        told = []
        for second in range(100):
            now[0] = 100.0 + second
            manager.sign_of_life(lambda second=second: second != 30)  # type: ignore[misc]
            with contextlib.suppress(BlockingIOError):
                told.append((second, end.recv(100)))
        assert told == [(second, b"WATCHDOG=1") for second in (0, 31, 61, 91)]


def test_one_that_reads_nothing_holds_nothing_up(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "notify"))
        manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        for _ in range(5000):  # far more than a socket holds
            manager.tell(WATCHDOG="1")


@pytest.mark.parametrize(
    "environment",
    [{}, {"NOTIFY_SOCKET": "/nowhere/notify"}, {"NOTIFY_SOCKET": "", "WATCHDOG_USEC": "soon"}],
)
def test_where_nobody_listens_nothing_happens(environment: dict[str, str]) -> None:
    manager = ServiceManager(environment)
    manager.tell(READY="1")
    manager.sign_of_life(lambda: True)
