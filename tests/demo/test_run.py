"""The demo's start: nothing that only its acts need stands between the command and the server."""

from __future__ import annotations

import contextlib
import io
import math
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from trimodal.demo import run as module
from trimodal.demo.play import acts_of
from trimodal.demo.run import ACTS
from trimodal.server.launch import Child
from trimodal.server.ports import PortInUse
from trimodal.server.process import TritonServer


def test_the_acts_are_those_that_are_counted() -> None:
    assert tuple(acts_of(Path("samples"), judged=True)) == ACTS


def test_what_the_acts_import_is_left_for_the_time_in_which_models_load() -> None:
    heavy = "openai, fastapi, uvicorn, websockets, numpy.testing, soundfile"
    code = f"import sys, trimodal.demo.run; print([m for m in '{heavy}'.split(', ') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@pytest.fixture
def server(monkeypatch, tmp_path) -> SimpleNamespace:
    """A shell as the server, which ends when `over` is there, and a play of which `right` are right."""
    played = SimpleNamespace(children=[], over=tmp_path / "over", right=lambda: 7)

    class Server(TritonServer):
        grpc_url = http_url = "nowhere"
        log_path = tmp_path / "log"

        def start(self, **options) -> None:
            self._child = Child(self.log_path)
            until = f"while [ ! -e {played.over} ]; do sleep 0.05; done; exit 3"
            self._child.start(["/bin/sh", "-c", until], {}, operator_key="")
            played.children.append(self._child)
            options["meanwhile"]()

        def wait(self, timeout: float) -> int | None:
            if timeout == math.inf:
                played.over.touch()
            return super().wait(timeout)

        def stop(self, *_, **__) -> list[str]:
            self.kill()
            return []

    monkeypatch.setattr(module, "GATEWAY_PORT", 0)

    class Play:
        def __init__(self, *_) -> None:
            self.serving = lambda: contextlib.nullcontext("http://nowhere")

        async def run(self, *_, **__) -> int:
            return played.right()

    monkeypatch.setattr(module, "TritonServer", Server)
    monkeypatch.setattr(module, "show_summary", lambda *_: None)
    monkeypatch.setattr("trimodal.demo.play.Play", Play)
    return played


def test_a_demo_that_is_kept_serves_until_its_server_ends(server, tmp_path) -> None:
    """It died at once: no call waits for infinite milliseconds. Then it ended with exit code 0."""
    console = Console(file=io.StringIO())
    assert module.run(console, None, keep=True) is None
    told = console.file.getvalue()
    assert "Still serving at http://nowhere" in told
    assert f"demo: tritonserver ended by itself (exit status 3)\nlog: {tmp_path / 'log'}\n" in told
    assert server.children[0].guard.returncode is not None
    assert not server.children[0].run_directory.exists()


@pytest.mark.parametrize("right", [2, 7])
def test_a_server_that_ended_within_the_acts_is_not_said_to_serve(server, right) -> None:
    """Where all were answered before, the demo was a success."""

    def play() -> int:
        server.over.touch()
        server.children[0].wait(10)
        return right

    server.right = play
    console = Console(file=io.StringIO())
    assert module.run(console, None, keep=True) is None
    told = console.file.getvalue()
    assert "tritonserver ended by itself (exit status 3)" in told
    assert "Still serving" not in told


def test_acts_that_are_not_all_played_are_not_counted(server) -> None:
    """After Ctrl-C, five acts right, it said "0 of 7 acts answered"."""

    def right() -> int:
        raise KeyboardInterrupt

    server.right = right
    console = Console(file=io.StringIO())
    assert module.run(console, None, keep=False) is None
    assert "demo: stopped\n" in console.file.getvalue()


def test_a_machine_that_refuses_is_one_sentence(monkeypatch) -> None:
    """It was a traceback."""

    def start(self, **_) -> None:
        raise OSError(28, "No space left on device", "/tmp/trimodal-server-x/backends")

    monkeypatch.setattr(TritonServer, "start", start)
    console = Console(file=io.StringIO(), width=200)
    assert module.run(console, None, keep=False) is None
    told = console.file.getvalue()
    assert told.endswith("demo: /tmp/trimodal-server-x/backends: no space left on device\n")


def test_a_port_that_is_taken_names_no_option_that_the_demo_lacks(monkeypatch) -> None:
    """It told of --http-port, and of the gateway's only when all models were loaded."""
    console = Console(file=io.StringIO(), width=200)

    def start(self, **_) -> None:
        raise PortInUse("port 8000 on 127.0.0.1 is in use", "--http-port")

    monkeypatch.setattr(TritonServer, "start", start)
    monkeypatch.setattr(module, "GATEWAY_PORT", 0)
    assert module.run(console, None, keep=True) is None
    with socket.create_server((module.HOST, 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(module, "GATEWAY_PORT", port)
        assert module.run(console, None, keep=True) is None
    assert console.file.getvalue().splitlines() == [
        "demo: port 8000 on 127.0.0.1 is in use: end what listens there, or leave out --keep",
        f"demo: cannot listen on 127.0.0.1:{port}: address already in use: "
        "end what listens there, or leave out --keep",
    ]
