"""`trimodal serve` and TritonServer against the real tritonserver, with trivial Python models."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from trimodal.errors import ServerError
from trimodal.server.launch import GRPC_PREFIX, OPERATOR_HEADER
from trimodal.server.process import TritonServer

from .conftest import own_processes, wait_until

pytestmark = pytest.mark.e2e


def text(name: str, shape: list[int], value: str) -> grpcclient.InferInput:
    tensor = grpcclient.InferInput(name, shape, "BYTES")
    tensor.set_data_from_numpy(np.full(shape, value.encode(), dtype=np.object_))
    return tensor


def echo(client: grpcclient.InferenceServerClient, value: str) -> str:
    answer = client.infer("echo", [text("text_input", [1, 1], value)], client_timeout=10)
    return answer.as_numpy("text_output")[0, 0].decode()


class Ticks:
    """One stream of the ticker: what arrived, and how it ended. It keeps the gRPC stream open."""

    def __init__(self, url: str, count: int) -> None:
        self.numbers: list[int] = []
        self.error = ""
        self.ended = threading.Event()
        self._client = grpcclient.InferenceServerClient(url)
        self._client.start_stream(self._on)
        tensor = grpcclient.InferInput("count", [1], "INT32")
        tensor.set_data_from_numpy(np.array([count], dtype=np.int32))
        self._client.async_stream_infer("ticker", [tensor], enable_empty_final_response=True)

    def _on(self, result: grpcclient.InferResult | None, error: Exception | None) -> None:
        if error:
            self.error = str(error)
            self.ended.set()
        elif result:
            if result.get_response().parameters["triton_final_response"].bool_param:
                self.ended.set()
            else:
                self.numbers.append(int(result.as_numpy("tick")[0]))

    def started(self) -> None:
        wait_until(lambda: len(self.numbers) >= 3, "the first ticks")

    def close(self) -> None:
        self._client.stop_stream(cancel_requests=True)
        self._client.close()


@pytest.fixture
def ticks():
    with contextlib.ExitStack() as stack:

        def start(url: str, count: int) -> Ticks:
            stream = Ticks(url, count)
            stack.callback(stream.close)
            return stream

        yield start


def status(url: str, *, data: bytes | None = None, headers: dict[str, str] | None = None) -> int:
    """The HTTP status; 0 when nobody answers."""
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, data=data, headers=headers or {}), timeout=5
        ) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def test_serves_and_stops(no_leftovers, own_server):
    server = own_server(("echo",))
    assert server.api.ready()
    assert server.versions == {"echo": "1"}
    assert server.load.seconds["echo"] > 0
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        assert echo(client, "hello") == "hello"
    assert server.stop() == []
    assert not server.alive


def test_settings_of_an_overlay_reach_the_model(serve):
    server = serve(("echo",), {"echo": {"greeting": "dear-"}})
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        assert echo(client, "world") == "dear-world"


def test_operator_apis_need_the_key(serve):
    server = serve(("echo", "ticker"))
    index = f"http://{server.http_url}/v2/repository/index"
    shared = f"http://{server.http_url}/v2/systemsharedmemory/status"
    key = {OPERATOR_HEADER: server.operator_key}
    assert status(index, data=b"{}") == 403
    assert status(index, data=b"{}", headers={OPERATOR_HEADER: "guessed"}) == 403
    assert status(index, data=b"{}", headers=key) == 200
    assert status(shared) == 403
    assert status(f"http://{server.http_url}/v2/models/stats") == 200
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        with pytest.raises(grpcclient.InferenceServerException, match="[Rr]estricted|not allowed|expecting"):
            client.unload_model("echo")
        key = {GRPC_PREFIX + OPERATOR_HEADER: server.operator_key}
        assert client.get_model_repository_index(headers=key).models
        assert echo(client, "still here") == "still here"


def test_dynamic_batching_does_not_stall(serve):
    server = serve(("echo", "ticker"))
    tensor = text("text_input", [1, 1], "x")
    seconds = []
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        for _ in range(3000):
            start = time.perf_counter()
            client.infer("echo", [tensor])
            seconds.append(time.perf_counter() - start)
    assert not [second for second in seconds if 0.45 <= second <= 0.55]


def test_two_servers_start_at_once(no_leftovers, own_server):
    servers: list[TritonServer] = []
    threads = [
        threading.Thread(target=lambda: servers.append(own_server(("echo",), drain_timeout=5.0)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(servers) == 2
    assert all(server.api.ready() for server in servers)
    for server in servers:
        server.stop(0)


def test_command_shows_a_table_and_drains_on_sigterm(no_leftovers, command):
    run = command("--model", "echo")
    run.wait_for("Ready. Press Ctrl-C to stop.")
    for shown in ("echo", "python", f"http://127.0.0.1:{run.http_port}", f"127.0.0.1:{run.grpc_port}"):
        assert shown in run.output
    run.process.send_signal(signal.SIGTERM)
    assert run.finish() == 0, run.output


def test_port_in_use(no_leftovers, command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = command("--model", "echo", "--grpc-port", str(port))
        assert run.finish() == 1
    assert f"port {port} on 127.0.0.1 is in use: choose another with --grpc-port" in run.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--model", "broken", "--model", "echo"],
            "model broken: no built engine in broken/1/onnx-int8: build",
        ),
        (["--model", "broken", "--set", "broken.how=bug"], "model broken: KeyError: 'missing'"),
        (["--model", "broken", "--set", "broken.how=dies"], "model broken: its Python process died while"),
        (
            ["--model", "echo", "--set", "echo.loud=1"],
            "model echo: echo/config.pbtxt: unknown parameter 'loud'",
        ),
        (["--model", "echo", "--set", "ticker2.x=1"], "cannot set a parameter of 'ticker2': the models are"),
        (["--model", "nothing"], "no model 'nothing' in"),
        (["--model-repository", "/nonexistent"], "model repository /nonexistent does not exist"),
    ],
)
def test_one_sentence_for_what_cannot_start(no_leftovers, command, arguments, sentence):
    run = command(*arguments)
    assert run.finish() == 1
    assert f"trimodal serve: {sentence}" in run.output
    assert "Traceback" not in run.output


def test_no_tritonserver(no_leftovers, command):
    run = command("--model", "echo", environment={"TRIMODAL_TRITONSERVER": "/nonexistent/bin/tritonserver"})
    assert run.finish() == 1
    assert "trimodal serve: TRIMODAL_TRITONSERVER names /nonexistent" in run.output


def test_ready_timeout_names_what_still_loads(no_leftovers, own_server):
    with pytest.raises(ServerError, match="not ready after 2 s .*waiting for: slow_start"):
        own_server(("slow_start",), {"slow_start": {"seconds": "30"}}, ready_timeout=2.0)


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
    start = time.monotonic()
    assert run.finish() == 0, run.output
    assert time.monotonic() - start < 10
    assert "cut" not in run.output


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


@pytest.mark.parametrize("loading", [False, True])
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
    (guard,) = own_processes(r"guard\.py" + port)
    (tritonserver,) = own_processes(r"^\S*/bin/tritonserver " + port)
    os.kill({"launcher": run.pid, "guard": guard, "tritonserver": tritonserver}[victim], signal.SIGKILL)
    code = run.finish()
    if victim != "launcher":
        assert code == 1
        assert "trimodal serve: tritonserver ended" in run.output
