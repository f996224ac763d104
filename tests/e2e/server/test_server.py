"""`trimodal serve` and TritonServer against the real tritonserver: starting, and refusing to."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from dataclasses import replace
from datetime import timedelta

import grpc
import pytest
import tritonclient.grpc as grpcclient

from tests.e2e.conftest import BOUND, TEST_REPOSITORY, options
from tests.e2e.trivial import echo, status
from tests.server.artefacts import H200
from trimodal.errors import ServerError
from trimodal.server import preflight
from trimodal.server.artefacts import FileCheck
from trimodal.server.launch import OPERATOR_HEADER
from trimodal.server.process import Interrupted, TritonServer

pytestmark = pytest.mark.e2e


def test_serves_and_stops(no_leftovers, own_server):
    server = own_server(("echo",))
    assert server.api.ready()
    assert server.load.seconds["echo"] > 0
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        assert echo(client, "hello") == "hello"
    assert server.stop() == []
    assert not server.alive


def test_a_repository_whose_path_a_shell_would_take_apart(own_server, monkeypatch, tmp_path):
    """Nor is there a locale, as in a container."""
    for name in ("LC_ALL", "LANG", "LC_CTYPE", "PYTHONUTF8"):
        monkeypatch.delenv(name, raising=False)
    repository = tmp_path / "it's a $HOME; of é"
    shutil.copytree(TEST_REPOSITORY / "echo", repository / "echo")
    server = own_server(("echo",), repository=repository)
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        assert echo(client, "hello") == "hello"


@pytest.mark.parametrize("host", ["::1", "::"])
def test_ipv6(own_server, host):
    try:
        socket.create_server((host, 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    server = own_server(("echo",), host=host)
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        assert echo(client, "hello") == "hello"
    for url in (f"http://{server.health_url}/ready", f"http://{server.metrics_url}/metrics"):
        assert status(url) == 200


@pytest.mark.slow
def test_a_client_that_pings_often_keeps_its_connection(serve):
    """gRPC's servers end the connection of one that pings more than three times in five minutes."""
    often = {"keepalive_time_ms": 200, "keepalive_permit_without_calls": 1, "http2.max_pings_without_data": 0}
    channel = grpc.insecure_channel(
        serve(("echo",)).grpc_url, [(f"grpc.{name}", value) for name, value in often.items()]
    )
    seen = []
    channel.subscribe(seen.append, try_to_connect=True)
    grpc.channel_ready_future(channel).result(BOUND)
    time.sleep(6)
    channel.close()
    assert seen[-1] == grpc.ChannelConnectivity.READY


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
        # gRPC metadata of a restricted protocol carry this prefix before the header's name.
        key = {f"triton-grpc-protocol-{OPERATOR_HEADER}": server.operator_key}
        assert client.get_model_repository_index(headers=key).models
        assert echo(client, "still here") == "still here"


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
        (["--model", "nothing"], "no model 'nothing' in"),
    ],
)
def test_one_sentence_for_what_cannot_start(no_leftovers, command, arguments, sentence):
    run = command(*arguments)
    assert run.finish() == 1
    assert f"trimodal serve: {sentence}" in run.output
    assert "Traceback" not in run.output


def test_ready_timeout_names_what_still_loads(no_leftovers, own_server):
    with pytest.raises(ServerError, match="not ready after 2 s .*waiting for: slow_start"):
        own_server(("slow_start",), {"slow_start": {"seconds": "30"}}, ready_timeout=2.0)


class Reading(FileCheck):
    """Files that are read for ever, or until `enough` is set; then it is known what is wrong with them."""

    def __init__(self, failure: str = "") -> None:
        super().__init__({}, {})
        self._found, self.enough = failure, self._stopped

    def run(self) -> None:
        self.enough.wait(BOUND)
        self.failure = self._found


@pytest.fixture
def reading(monkeypatch, request):
    """What reads the files of the server that is started."""
    check = Reading(request.param)
    monkeypatch.setattr(preflight, "check_models", lambda triton, models: check)
    return check


@pytest.mark.parametrize("reading", [""], indirect=True)
def test_it_is_not_ready_while_files_are_read_and_a_signal_ends_that(no_leftovers, reading):
    """Ctrl-C was not looked at before all files were read, which takes minutes where they have gigabytes."""
    server = TritonServer(options(("echo",), {}))
    looks: list[bool] = []

    def stop() -> bool:
        looks.append(server.api.ready("echo"))
        assert status(f"http://{server.health_url}/ready") == 503
        return looks.count(True) > 2

    try:
        with pytest.raises(Interrupted):
            server.start(stop=stop)
    finally:
        server.kill()
    assert not reading.is_alive()


@pytest.mark.parametrize("reading", ["model echo: a file is not what was built"], indirect=True)
def test_a_damaged_file_is_told_before_what_a_model_says(no_leftovers, reading):
    server = TritonServer(options(("broken", "echo"), {}))
    reading.enough = threading.Event()

    def stop() -> bool:
        if server.load.failures:
            reading.enough.set()
        return False

    try:
        with pytest.raises(ServerError, match="^model echo: a file is not what was built$"):
            server.start(stop=stop)
        assert server.load.failures
    finally:
        reading.enough.set()
        server.kill()


def up(server: TritonServer, over: bool) -> bool:
    """Ends the time that a start has where it is `over`; False, as what stops a start says."""
    if over:
        server.options = replace(server.options, ready_timeout=0.0)
    return False


@pytest.mark.parametrize("reading", [""], indirect=True)
def test_when_time_is_up_while_files_are_read_what_a_model_said_is_told(no_leftovers, reading):
    server = TritonServer(options(("broken", "echo"), {}))
    with pytest.raises(ServerError, match=r"^model broken: (?!.*not ready after)"):
        server.start(stop=lambda: up(server, bool(server.load.failures)))


@pytest.mark.parametrize("reading", [""], indirect=True)
def test_when_time_is_up_it_is_told_that_files_are_being_read(no_leftovers, reading):
    server = TritonServer(options(("echo",), {}))
    looks: list[float] = []

    def stop() -> bool:
        if "echo" in server.load.loaded:
            looks.append(time.monotonic())
        return up(server, bool(looks) and time.monotonic() - looks[0] > 1.0)

    with pytest.raises(ServerError, match="not ready after .*waiting for: the check of its files"):
        server.start(stop=stop)
    assert len(looks) < 100  # it was looked at 500 times a second, for as long as files were read


def test_when_time_is_up_it_is_told_that_something_is_prepared(no_leftovers):
    server = TritonServer(options(("echo",), {}))
    loaded = threading.Event()

    def stop() -> bool:
        if "echo" in server.load.loaded:
            loaded.set()
        return up(server, loaded.is_set())

    def prepare() -> None:
        loaded.wait(BOUND)
        time.sleep(2.0)

    with pytest.raises(ServerError, match="not ready after .*waiting for: what is prepared beside it"):
        server.start(stop=stop, meanwhile=prepare)


def test_what_is_done_while_models_load_is_done_once_and_its_error_ends_the_start(no_leftovers):
    server = TritonServer(options(("echo",), {}))
    done: list[str] = []
    try:
        server.start(meanwhile=lambda: done.append(server.url))
        assert done == [server.url]
    finally:
        server.stop(0)

    def fails() -> None:
        raise ServerError("the gateway needs nothing")

    with pytest.raises(ServerError, match="^the gateway needs nothing$"):
        server.start(meanwhile=fails)


def test_what_takes_the_rest_of_a_gpu_loads_last_and_until_then_the_server_is_not_ready(
    no_leftovers, monkeypatch
):
    monkeypatch.setattr(preflight, "visible_gpus", lambda: [H200])
    changes = {"echo": {"device": "cuda"}, "slow_start": {"engine": "vllm", "seconds": "1"}}
    server = TritonServer(options(("slow_start", "echo"), changes))
    looks: list[bool] = []
    told: list[str] = []  # that it is ready. Triton itself may say so for a few milliseconds.

    def look() -> bool:
        """Called while the launcher waits."""
        if "slow_start" in server.load.started and "slow_start" not in server.load.loaded:
            page = urllib.request.Request(f"http://{server.health_url}/ready", method="HEAD")
            with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(page, timeout=BOUND):
                told.append(page.full_url)
            looks.append(server.api.ready("echo"))
        return False

    try:
        server.start(stop=look)
        assert server.api.ready()
        assert set(server.models) == {"echo", "slow_start"}
    finally:
        server.stop(0)
    loaded = server.load.started["echo"] + timedelta(seconds=server.load.seconds["echo"])
    assert server.load.started["slow_start"] >= loaded
    assert any(looks)
    assert not told


def test_a_last_model_that_fails_is_told_as_any_other(no_leftovers, own_server, monkeypatch):
    monkeypatch.setattr(preflight, "visible_gpus", lambda: [H200])
    changes = {"echo": {"device": "cuda"}, "broken": {"engine": "vllm"}}
    with pytest.raises(ServerError, match="^model broken: no built engine in broken/1/onnx-int8: build"):
        own_server(("broken", "echo"), changes)


def test_json_nested_a_million_deep_is_refused_and_the_server_lives(serve):
    """Triton reads JSON by recursion; on the usual stack 150,000 levels kill it."""
    server = serve(models=("echo",))
    with contextlib.closing(http.client.HTTPConnection(server.http_url, timeout=60)) as connection:
        connection.request("POST", "/v2/models/echo/infer", body=b"[" * 1_000_000)
        response = connection.getresponse()
        assert response.status >= 400
        assert b"parse" in response.read()
    assert server.alive
