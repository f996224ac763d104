"""How a real server ends: drained by a signal, at its limit, or killed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import threading
import time
import urllib.request
from pathlib import Path

import httpx
import pytest
import tritonclient.grpc as grpcclient

from tests.e2e import fakes
from tests.e2e.conftest import BOUND, MODEL_REPOSITORY, own_processes, wait_until
from tests.e2e.trivial import Ticks, echo, status, text

pytestmark = pytest.mark.e2e


@pytest.fixture
def ticks():
    with contextlib.ExitStack() as stack:

        def start(url: str, count: int) -> Ticks:
            stream = Ticks(url, count)
            stack.callback(stream.close)
            return stream

        yield start


def test_sigterm_while_loading(no_leftovers, command):
    run = command("--model", "slow_start", "--set", "slow_start.seconds=30")
    wait_until(lambda: own_processes("python_backend_stub.*slow_start"), "the stub")
    run.process.send_signal(signal.SIGTERM)
    assert run.finish() == 0
    assert "Stopped while loading." in run.output


def test_sigterm_in_the_middle_of_a_stream(no_leftovers, command, ticks):
    run = command("--model", "ticker", "--model", "echo")
    run.wait_for("Ready.")
    base = f"http://127.0.0.1:{run.http_port}"
    stream = ticks(f"127.0.0.1:{run.grpc_port}", 20)
    events: list[bytes] = []

    def read_events() -> None:
        url, data = f"{base}/v2/models/ticker/generate_stream", json.dumps({"count": 20}).encode()
        with urllib.request.urlopen(urllib.request.Request(url, data=data), timeout=20) as answer:
            events.extend(line for line in answer if line.startswith(b"data:"))

    reader = threading.Thread(target=read_events)
    reader.start()
    stream.started()
    with grpcclient.InferenceServerClient(f"127.0.0.1:{run.grpc_port}") as client:
        assert client.is_server_ready()
        run.process.send_signal(signal.SIGTERM)
        wait_until(lambda: status(f"{base}/v2/health/ready") == 400, "readiness to turn false over HTTP")
        assert client.is_server_live()
        assert not client.is_server_ready()
        with pytest.raises(grpcclient.InferenceServerException, match="has no available versions"):
            echo(client, "too late")
        assert not stream.ended.is_set()
    assert stream.ended.wait(20)
    reader.join(20)
    assert stream.error == ""
    assert stream.numbers == list(range(20))
    assert len(events) >= 20
    # The stream is still open on the client's side, and the drain ends all the same.
    assert run.finish() == 0, run.output
    assert "cut" not in run.output


def test_temporary_files_of_models_end_with_the_server(no_leftovers, command):
    run = command("--model", "echo")
    run.wait_for("Ready.")
    (stub,) = own_processes("python_backend_stub.*echo")
    (folder,) = [
        Path(os.fsdecode(entry.removeprefix(b"TMPDIR=")))
        for entry in Path(f"/proc/{stub}/environ").read_bytes().split(b"\0")
        if entry.startswith(b"TMPDIR=")
    ]
    (folder / "left behind").touch()
    run.process.send_signal(signal.SIGTERM)
    assert run.finish() == 0, run.output
    assert not folder.exists()


@pytest.mark.slow
def test_an_ensemble_in_flight_is_finished(no_leftovers, own_server):
    server = own_server(("delayed_pair",))
    answers: list[bytes] = []

    def ask() -> None:
        with grpcclient.InferenceServerClient(server.grpc_url) as client:
            answer = client.infer("delayed_pair", [text("text_input", [1], "both")], client_timeout=20)
            answers.append(answer.as_numpy("text_output")[0])

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.5)  # in its first step, which takes a second
    assert server.stop() == []
    thread.join(20)
    assert answers == [b"both"]


def test_the_drain_has_a_limit(no_leftovers, command, ticks):
    run = command("--model", "ticker", "--drain-timeout", "1")
    run.wait_for("Ready.")
    stream = ticks(f"127.0.0.1:{run.grpc_port}", 1000)
    stream.started()
    run.process.send_signal(signal.SIGTERM)
    assert run.finish() == 0
    assert "Running requests of ticker were cut." in run.output
    assert stream.ended.wait(10)
    assert stream.error


@pytest.mark.slow
def test_a_second_signal_stops_at_once(no_leftovers, command, ticks):
    run = command("--model", "ticker")
    run.wait_for("Ready.")
    stream = ticks(f"127.0.0.1:{run.grpc_port}", 1000)
    stream.started()
    run.process.send_signal(signal.SIGINT)
    run.wait_for("Draining")
    assert run.process.poll() is None
    run.process.send_signal(signal.SIGINT)
    assert run.finish() == 0


@pytest.mark.parametrize("loading", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("victim", ["launcher", "guard", "tritonserver"])
def test_kill_leaves_nothing(no_leftovers, command, victim, loading):
    models = ["--model", "echo"]
    if loading:
        models += ["--model", "slow_start", "--set", "slow_start.seconds=60"]
    run = command(*models)
    if loading:
        wait_until(lambda: own_processes("python_backend_stub.*slow_start"), "the stub")
    else:
        run.wait_for("Ready.")
    port = rf".* --http-port={run.http_port}\b"
    # A stub between fork and exec still has its parent's command line: there may be two for a moment.
    tritonserver = min(own_processes(r"^\S*/bin/tritonserver " + port))
    guard = int(Path(f"/proc/{tritonserver}/stat").read_text().rpartition(")")[2].split()[1])  # its parent
    os.kill({"launcher": run.pid, "guard": guard, "tritonserver": tritonserver}[victim], signal.SIGKILL)
    code = run.finish()
    if victim != "launcher":
        assert code == 1
        assert "trimodal serve: tritonserver ended" in run.output


@pytest.mark.slow
def test_a_gateway_of_serve_drains_before_the_server(no_leftovers, command):
    settings = {**fakes.LLM, "fake_answer": "word " * 60, "fake_step_ms": "20"}
    changes = [part for name, value in settings.items() for part in ("--set", f"llm.{name}={value}")]
    run = command(
        "--model-repository", str(MODEL_REPOSITORY), "--model", "llm", *changes,
        "--gateway", "--gateway-port", "0",
    )  # fmt: skip
    run.wait_for("Ready.")
    (url,) = re.findall(r"OpenAI  (\S+), for everybody on this machine", run.output)
    chat = {"model": "llm", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 60, "stream": True}
    with httpx.stream("POST", f"{url}/chat/completions", json=chat, timeout=BOUND) as answer:
        lines = answer.iter_lines()
        next(lines)
        run.process.send_signal(signal.SIGTERM)
        assert [*lines][-2:] == ["data: [DONE]", ""]
    assert run.finish() == 0
    assert "Draining" in run.output
    assert "cut" not in run.output


@pytest.mark.slow
def test_what_a_gateway_lacks_is_told_before_the_models_load(no_leftovers, command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        run = command("--model", "echo", "--gateway", "--gateway-port", port)
        assert run.finish() == 1
    assert f"trimodal serve: cannot listen on 127.0.0.1:{port}: address already in use" in run.output
    run = command("--model", "echo", "--gateway", "--gateway-host", "0.0.0.0")
    assert run.finish() == 1
    assert "trimodal serve: host '0.0.0.0' can be reached from other machines: name a file of" in run.output


@pytest.mark.slow
def test_streams_that_a_drain_cuts_end_with_an_error(no_leftovers, command):
    settings = {**fakes.LLM, "fake_answer": "word " * 400, "fake_step_ms": "50"}
    changes = [part for name, value in settings.items() for part in ("--set", f"llm.{name}={value}")]
    run = command(
        "--model-repository", str(MODEL_REPOSITORY), "--model", "llm", *changes, "--drain-timeout", "1",
    )  # fmt: skip
    run.wait_for("Ready.")
    url = f"http://127.0.0.1:{run.http_port}/v2/models/llm/generate_stream"
    asked = {"text_input": "hi", "max_tokens": 400}
    with httpx.stream("POST", url, json=asked, timeout=BOUND) as answer:
        lines = (line for line in answer.iter_lines() if line)
        next(lines)
        run.process.send_signal(signal.SIGTERM)
        told = list(lines)
    assert "the server is shutting down" in told[-1]
    assert run.finish() == 0
    assert "Running requests of llm were cut." in run.output


@pytest.mark.slow
def test_a_server_that_dies_while_it_drains(no_leftovers, command, ticks):
    run = command("--model", "ticker", "--drain-timeout", "30")
    run.wait_for("Ready.")
    stream = ticks(f"127.0.0.1:{run.grpc_port}", 1000)
    stream.started()
    run.process.send_signal(signal.SIGTERM)
    run.wait_for("Draining")
    os.kill(min(own_processes(rf"^\S*/bin/tritonserver .* --http-port={run.http_port}\b")), signal.SIGKILL)
    assert run.finish() == 0
    assert "Traceback" not in run.output
    assert stream.ended.wait(10)
