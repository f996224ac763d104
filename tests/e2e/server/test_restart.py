"""A tritonserver that dies is started again, where that was asked for; systemd hears of all of it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import BOUND, TEST_REPOSITORY, own_processes, wait_until

pytestmark = pytest.mark.e2e


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.2:{port}/ready", timeout=BOUND) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


class Manager:
    """Hears what systemd would."""

    def __init__(self, path: Path) -> None:
        self.environment = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "400000"}
        self.heard: list[bytes] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._thread = threading.Thread(target=self._hear, daemon=True)
        self._thread.start()

    def _hear(self) -> None:
        while text := self._socket.recv(1000):
            self.heard.append(text)

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.sendto(b"", self.environment["NOTIFY_SOCKET"])
        self._thread.join(BOUND)
        self._socket.close()


def test_a_server_that_dies_is_started_again(
    no_leftovers: None, command: Callable[..., Any], tmp_path: Path
) -> None:
    manager = Manager(tmp_path / "notify")
    elsewhere = ("--health-host", "0.0.0.0")
    run = command("--model", "echo", "--restart", *elsewhere, environment=manager.environment)
    run.wait_for("Ready.")
    wait_until(lambda: b"WATCHDOG=1" in manager.heard, "a sign of life")
    ended = "tritonserver ended by itself (exit status 137)"
    for count in (1, 2):
        server = min(own_processes(rf"^\S*/bin/tritonserver .* --http-port={run.http_port}\b"))
        os.kill(server, signal.SIGKILL)
        wait_until(lambda count=count: run.output.count("Ready again after") == count, f"start {count}")
        wait_until(lambda: ready(run.health_port), "the health page")
    assert f"{ended}; starting it again.\n" in run.output
    assert f"{ended}; starting it again in 1 s.\n" in run.output
    run.process.send_signal(signal.SIGTERM)
    assert run.finish() == 0
    manager.close()
    assert manager.heard[:2] == [b"READY=1", b"WATCHDOG=1"]
    assert f"STATUS={ended}; it is started again".encode() in manager.heard
    assert manager.heard[-1] == b"STOPPING=1"


def test_a_server_that_hangs_is_ended_and_started_again(
    no_leftovers: None, command: Callable[..., Any]
) -> None:
    """A crash that hung: alive to its page for ten minutes, and nothing was answered."""
    run = command("--model", "echo", "--restart", "--hang-timeout", "2")
    run.wait_for("Ready.")
    server = min(own_processes(rf"^\S*/bin/tritonserver .* --http-port={run.http_port}\b"))
    os.kill(server, signal.SIGSTOP)
    run.wait_for("Ready again after")
    assert "tritonserver runs and answers nothing" in run.output
    run.process.send_signal(signal.SIGTERM)
    assert run.finish() == 0


@pytest.mark.slow
def test_a_signal_ends_a_server_that_waits_for_its_next_start(
    no_leftovers: None, command: Callable[..., Any], tmp_path: Path
) -> None:
    repository = tmp_path / "repository"
    shutil.copytree(TEST_REPOSITORY / "echo", repository / "echo")
    run = command("--model", "echo", "--restart", "--model-repository", str(repository))
    run.wait_for("Ready.")
    repository.rename(tmp_path / "elsewhere")  # the next start fails, and the one after it waits
    pattern = rf"^\S*/bin/tritonserver .* --http-port={run.http_port}\b"
    os.kill(min(own_processes(pattern)), signal.SIGKILL)
    run.wait_for("starting it again in")
    run.process.send_signal(signal.SIGTERM)
    assert run.finish() == 0
    assert "Stopped." in run.output
