"""A server that runs and says nothing."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import grpc
import pytest

from tests.doubles.http_server import Asked, answering
from trimodal.server.admin import Api
from trimodal.server.foreground import Signals, wait_for_signal
from trimodal.server.options import ServerOptions
from trimodal.server.process import TritonServer
from trimodal.server.supervision import heartbeat
from trimodal.server.supervision.heartbeat import Heartbeat

LIMIT_S = 20.0


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.02)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """What stands for tritonserver: a process with a group of its own."""
    wait = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    yield wait
    wait.kill()
    wait.communicate()


def beat(
    port: int, pid: int, limit_s: float = 0.2, grpc_port: int = 9, timeout_s: float = 0.05
) -> tuple[Heartbeat, threading.Event]:
    stopping = threading.Event()
    api = Api("127.0.0.1", port, port, "", timeout=timeout_s)
    thread = Heartbeat(api, f"127.0.0.1:{grpc_port}", pid, limit_s, stopping)
    thread.start()
    return thread, stopping


def test_silence_ends_it(process: subprocess.Popen[bytes], caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        thread, _ = beat(silent.getsockname()[1], process.pid)
        assert process.wait(LIMIT_S) == -9
        thread.join(LIMIT_S)
    assert "tritonserver runs and answers nothing" in caplog.text


def test_nothing_is_ended_while_the_server_stops(process: subprocess.Popen[bytes]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        thread, stopping = beat(silent.getsockname()[1], process.pid, limit_s=1e9)
        stopping.set()
        thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert process.poll() is None


def test_a_server_that_answers_lives_on_over_one_connection(process: subprocess.Popen[bytes]) -> None:
    asked = threading.Semaphore(0)
    connections = []

    def answer(request: Asked) -> tuple[int, bytes]:
        if request.connection not in connections:
            connections.append(request.connection)
        asked.release()
        return 200, b""

    with answering(answer) as port:
        thread, stopping = beat(port, process.pid, limit_s=LIMIT_S, timeout_s=LIMIT_S)
        for _ in range(20):
            assert asked.acquire(timeout=LIMIT_S)
        stopping.set()
        thread.join(LIMIT_S)
    assert process.poll() is None
    assert len(connections) == 1


@pytest.fixture
def grpc_alone() -> Iterator[tuple[int, threading.Semaphore]]:
    """The port of a Triton that is live over gRPC, and one release for each time it was asked."""
    asked = threading.Semaphore(0)

    def live(request: bytes, context: grpc.ServicerContext) -> bytes:
        asked.release()
        return b"\x08\x01"

    name, handler = "inference.GRPCInferenceService", grpc.unary_unary_rpc_method_handler(live)
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {"ServerLive": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port, asked
    server.stop(None)


def test_an_answer_by_grpc_is_a_sign_of_life(
    process: subprocess.Popen[bytes],
    grpc_alone: tuple[int, threading.Semaphore],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Loads of models hold all HTTP threads of Triton."""
    monkeypatch.setattr(Heartbeat, "_answers_http", lambda self: False)
    port, asked = grpc_alone
    thread, stopping = beat(9, process.pid, limit_s=0.1, grpc_port=port, timeout_s=LIMIT_S)
    for _ in range(20):  # of 20 ms each
        assert asked.acquire(timeout=LIMIT_S)
    stopping.set()
    thread.join(LIMIT_S)
    assert process.poll() is None


class Running(TritonServer):
    """A server that runs, as far as it can be seen, until a signal comes."""

    def wait(self, timeout: float) -> None:
        return None

    def new_lines(self) -> list[str]:
        return []

    def begin_drain(self) -> None:
        pass


class OneRound:
    """Signals that come after one look at the server."""

    def __init__(self) -> None:
        self.looks = 0

    def once(self) -> bool:
        self.looks += 1
        return self.looks > 1


@pytest.mark.parametrize("answers", [True, False])
def test_a_service_manager_is_told_of_that_sign_of_life_too(
    grpc_alone: tuple[int, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """systemd killed a server whose models took a minute to load again, eight at once."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    server = Running(ServerOptions())
    server.api = Api("127.0.0.1", 9, 9, "", timeout=LIMIT_S)
    server.grpc_url = f"127.0.0.1:{grpc_alone[0] if answers else 9}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(LIMIT_S)
        wait_for_signal(server, cast("Signals", OneRound()), verbose=False, restart=False)
        told = ["READY=1", *(["WATCHDOG=1"] if answers else []), "STOPPING=1"]
        assert [manager.recv(100).decode() for _ in told] == told
