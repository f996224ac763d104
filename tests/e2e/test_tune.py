"""`trimodal tune` on somebody's server: however it ends, the server is as before."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("optuna")

from tests.e2e.conftest import BOUND, TEST_REPOSITORY, wait_until
from trimodal.errors import ServerError
from trimodal.server.process import TritonServer
from trimodal.tune.live import LiveServer, Snapshot, apply

pytestmark = pytest.mark.e2e

KNOBS = (
    "--only",
    "--knob",
    "echo.max_queue_delay_microseconds=100,2000",
    "--knob",
    "echo.instance_count=2,3",
)


@pytest.fixture
def server(serve: Callable[..., TritonServer]) -> TritonServer:
    return serve(models=("echo",))


@pytest.fixture
def live(server: TritonServer) -> Iterator[LiveServer]:
    one = LiveServer(server.grpc_url, server.operator_key)
    yield one
    one.close()


def start(server: TritonServer, *arguments: str, key: str | None = None) -> subprocess.Popen[str]:
    environment = {"TRIMODAL_OPERATOR_KEY": key or server.operator_key}
    options = ("--url", server.grpc_url, "--model-repository", str(TEST_REPOSITORY), "--seconds", "0.2")
    return subprocess.Popen(
        [sys.executable, "-m", "trimodal.cli.app", "tune", "echo", *options, *KNOBS, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment, "COLUMNS": "200"},
    )


@pytest.mark.slow
def test_ends_with_a_report_and_the_server_as_before(server: TritonServer, live: LiveServer) -> None:
    before = live.config("echo")
    text = (TEST_REPOSITORY / "echo" / "config.pbtxt").read_text()
    process = start(server, "--trials", "3", "--rounds", "1", "--final-rounds", "1")
    output, _ = process.communicate(timeout=BOUND)
    assert process.returncode == 0, output
    assert "3 of 3" in output
    assert live.config("echo") == before
    assert (TEST_REPOSITORY / "echo" / "config.pbtxt").read_text() == text


def loaded(live: LiveServer) -> Any:
    """echo's config; None while it is loaded again, which may begin between two questions."""
    with contextlib.suppress(ServerError):
        return live.config("echo") if live.ready("echo") else None
    return None


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_in_the_middle(server: TritonServer, live: LiveServer, number: signal.Signals) -> None:
    before = live.config("echo")
    process = start(server, "--trials", "50", "--rounds", "2", "--final-rounds", "50")
    wait_until(lambda: loaded(live) not in (None, before), "a setting of a trial")
    process.send_signal(number)
    output, _ = process.communicate(timeout=BOUND)
    wait_until(lambda: loaded(live) == before, "the setting of before")
    if number == signal.SIGINT:
        assert process.returncode == 130, output
        assert "Interrupted after" in output
    else:
        assert "ended early; put back" in output  # the guard's, which has the same terminal


@pytest.mark.slow
def test_a_refused_load_and_a_model_that_is_gone(live: LiveServer) -> None:
    snapshot = Snapshot.take(live, ["echo"])
    bad = live.config("echo")
    bad.input[0].dims[:] = [0]
    assert "echo" in apply(live, {"echo": bad}, needed=snapshot.configs)
    assert snapshot.restore() == ["echo"]
    live.unload("echo")
    assert snapshot.restore() == ["echo"]
    assert live.ready("echo")


@pytest.mark.slow
def test_without_the_key_it_says_what_is_missing(server: TritonServer) -> None:
    process = start(server, "--trials", "2", key="wrong")
    output, _ = process.communicate(timeout=BOUND)
    assert process.returncode == 1
    assert "does not let models be loaded: give its operator key" in output
