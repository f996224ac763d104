"""deploy/haproxy/fleet.cfg: who gets which request, before stand-ins for three servers and two gateways."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
import yaml

from tests.deploy.objects import DEPLOY
from tests.e2e.conftest import wait_until
from tests.e2e.fleet.proxy import KEY, Proxy, running

BOUND = 30.0
TEXT = "/v2/models/llm/generate"
SPEECH = "/v2/models/speech/infer"
CLIENT = httpx.Client(timeout=BOUND)  # one for all: to make one takes longer than a test


class Server(ThreadingHTTPServer):
    """Stands for a Triton and its health page, or for a gateway; its end is that of its connections.

    Attributes:
        ready: status of /ready.
        status: of all else; 0 ends the connection without a byte, 1 within the body.
        hold: answers wait until it is set.
    """

    def __init__(self, name: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.name, self.ready, self.status, self.answered = name, 200, 200, 0
        self.hold = threading.Event()
        self.hold.set()
        self.connections: list[socket.socket] = []
        self.address = f"127.0.0.1:{self.server_address[1]}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def get_request(self) -> tuple[socket.socket, object]:
        connection, address = super().get_request()
        self.connections.append(connection)
        return connection, address

    def handle_error(self, *_: object) -> None:
        """Says nothing of clients that left."""

    def close(self) -> None:
        self.hold.set()
        self.shutdown()
        self.server_close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(BOUND)


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.say(self.server.ready if self.path in ("/ready", "/metrics") else 200)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.hold.wait(BOUND)
        self.server.answered += 1
        self.close_connection = self.server.status < 2
        if self.server.status:
            self.say(max(self.server.status, 200), missing=10 * (self.server.status == 1))

    def say(self, status: int, missing: int = 0) -> None:
        body = self.server.name.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) + missing))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def servers() -> Iterator[dict[str, Server]]:
    started = {name: Server(name) for name in ("serve-1", "serve-2", "serve-3", "gateway-1", "gateway-2")}
    yield started
    for server in started.values():
        server.close()


@pytest.fixture
def fleet(servers: dict[str, Server], tmp_path: Path) -> Iterator[Proxy]:
    addresses = {}
    for name, server in servers.items():
        kind, number = name.split("-")
        for what in ("HTTP", "HEALTH") if kind == "serve" else ("GATEWAY",):
            addresses[f"TRIMODAL_FLEET_{what}_{number}"] = server.address
    with running(tmp_path, addresses) as where:
        yield where


def ask(fleet: Proxy, path: str = TEXT, **headers: str) -> tuple[int, str]:
    headers = {"authorization": f"Bearer {KEY}"} | {k.replace("_", "-"): v for k, v in headers.items()}
    answer = CLIENT.post(f"http://{fleet.http}{path}", content=b"{}", headers=headers)
    return answer.status_code, answer.text


@contextlib.contextmanager
def asking(fleet: Proxy, count: int, pause_s: float = 0.0, **headers: str) -> Iterator[None]:
    """So many requests wait for their answers, which servers hold back; they have them at the block's end."""
    threads = [threading.Thread(target=ask, args=(fleet,), kwargs=headers) for _ in range(count)]
    for thread in threads:
        thread.start()
        time.sleep(pause_s)
    yield
    for thread in threads:
        thread.join(BOUND)


def status(fleet: Proxy, server: str, backend: str = "http_least") -> str:
    """UP, DOWN or DRAIN, as the balancer's metrics have it."""
    pattern = rf'haproxy_server_status\{{proxy="{backend}",server="{server}",state="(\w+)"\}} 1'
    return re.findall(pattern, fleet.page())[0]


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/v2/models/llm/ready", {}, 200),
        ("GET", "/v2/health/ready", {}, 200),
        ("GET", "/v2/models/llm", {"authorization": "Bearer guessed"}, 401),
        ("GET", "/v2/models/llm/config", {}, 404),
        ("GET", "/v2/models/../repository/index", {}, 404),
        ("GET", "/metrics", {}, 404),
        ("POST", "/v2/repository/index", {}, 404),
        ("POST", "/v2/repository/models/llm/unload", {}, 404),
        ("POST", "/v2/systemsharedmemory/region/a/register", {}, 404),
        ("POST", "/v2/logging", {}, 404),
        ("POST", TEXT, {"content-encoding": "gzip"}, 415),
        ("POST", TEXT, {"content-length": "", "transfer-encoding": "chunked"}, 411),
        ("POST", TEXT, {"content-length": "33554433"}, 413),
        ("POST", TEXT, {"inference-header-content-length": "4294967296"}, 400),
    ],
)
def test_what_is_let_through_is_what_one_server_s_proxy_lets_through(
    fleet: Proxy, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    """docs/security.md; tests/e2e/security asks haproxy.cfg the same, before a real server."""
    sent = {"authorization": f"Bearer {KEY}", "content-length": "0"} | headers
    host, port = fleet.http.rsplit(":", 1)
    lines = [f"{method} {path} HTTP/1.1", "host: a", "connection: close"]
    lines += [f"{name}: {value}" for name, value in sent.items() if value]
    with socket.create_connection((host, int(port)), timeout=BOUND) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        assert int(connection.recv(4096).split()[1]) == status


def test_without_a_header_all_servers_get_requests(fleet: Proxy, servers: dict[str, Server]) -> None:
    found = Counter(ask(fleet) for _ in range(30))
    assert set(found) == {(200, "serve-1"), (200, "serve-2"), (200, "serve-3")}
    assert min(found.values()) > 5
    assert ask(fleet, authorization="Bearer guessed")[0] == 401


def test_who_has_least_gets_the_next_one(fleet: Proxy, servers: dict[str, Server]) -> None:
    servers["serve-2"].hold.clear()
    with asking(fleet, 6, 0.05):
        assert Counter(ask(fleet)[1] for _ in range(10)).keys() == {"serve-1", "serve-3"}
        servers["serve-2"].hold.set()


def test_one_prefix_goes_to_one_server_until_that_has_too_much(
    fleet: Proxy, servers: dict[str, Server]
) -> None:
    homes = {f"talk-{n}": ask(fleet, x_trimodal_prefix=f"talk-{n}")[1] for n in range(30)}
    assert set(homes.values()) == {"serve-1", "serve-2", "serve-3"}
    for talk, home in homes.items():
        assert ask(fleet, x_trimodal_prefix=talk) == (200, home)
    home = homes["talk-0"]
    servers[home].hold.clear()
    before = sum(server.answered for server in servers.values())
    with asking(fleet, 4, x_trimodal_prefix="talk-0"):
        wait_until(lambda: sum(server.answered for server in servers.values()) > before, "another one")
        servers[home].hold.set()


def test_a_live_stream_keeps_its_server_also_in_its_drain(fleet: Proxy, servers: dict[str, Server]) -> None:
    homes = {f"stream-{n}": ask(fleet, SPEECH, x_trimodal_session=f"stream-{n}")[1] for n in range(9)}
    assert Counter(homes.values()) == {"serve-1": 3, "serve-2": 3, "serve-3": 3}
    assert fleet.drain("serve-1") == (0, "")
    wait_until(lambda: status(fleet, "serve-1") == "DRAIN", "the drain in all backends")
    for stream, home in homes.items():
        assert ask(fleet, SPEECH, x_trimodal_session=stream) == (200, home)
    assert {ask(fleet, SPEECH, x_trimodal_session=f"new-{n}")[1] for n in range(9)} == {"serve-2", "serve-3"}
    assert {ask(fleet)[1] for _ in range(9)} == {"serve-2", "serve-3"}
    assert fleet.drain("serve-1", "--resume") == (0, "")
    assert "serve-1" in {ask(fleet)[1] for _ in range(40)}


def test_a_stream_whose_server_is_gone_gets_503_and_no_other_server(
    fleet: Proxy, servers: dict[str, Server]
) -> None:
    home = ask(fleet, SPEECH, x_trimodal_session="a")[1]
    servers[home].close()
    assert ask(fleet, SPEECH, x_trimodal_session="a")[0] == 503
    wait_until(lambda: status(fleet, home) == "DOWN", "the probe")
    assert ask(fleet, SPEECH, x_trimodal_session="a")[0] == 503
    assert ask(fleet, SPEECH, x_trimodal_session="b")[0] == 200


def test_chunks_without_a_session_go_to_one_server(fleet: Proxy) -> None:
    assert len({ask(fleet, SPEECH) for _ in range(12)}) == 1


def test_what_had_no_answer_is_asked_again_elsewhere(fleet: Proxy, servers: dict[str, Server]) -> None:
    servers["serve-1"].status = 0  # ends the connection
    servers["serve-2"].status = 503
    assert {ask(fleet) for _ in range(9)} == {(200, "serve-3")}
    assert servers["serve-1"].answered
    assert servers["serve-2"].answered
    servers["serve-1"].status, servers["serve-2"].status = 404, 200  # a model that unloads
    assert (404, "serve-1") not in {ask(fleet) for _ in range(9)}


def test_what_had_a_byte_of_its_answer_is_not_asked_again(fleet: Proxy, servers: dict[str, Server]) -> None:
    for name in ("serve-1", "serve-2", "serve-3"):
        servers[name].status = 1
    with pytest.raises(httpx.RemoteProtocolError):
        ask(fleet)
    assert sum(server.answered for server in servers.values()) == 1


def test_a_server_that_is_not_ready_gets_nothing(fleet: Proxy, servers: dict[str, Server]) -> None:
    servers["serve-3"].ready = 503
    wait_until(lambda: status(fleet, "serve-3") == "DOWN", "the probe")
    assert {ask(fleet)[1] for _ in range(12)} == {"serve-1", "serve-2"}
    servers["serve-3"].ready = 200
    wait_until(lambda: status(fleet, "serve-3") == "UP", "the probe")


def test_gateways_are_used_while_they_reach_any_model() -> None:
    haproxy = (DEPLOY / "haproxy" / "fleet.cfg").read_text().partition("\nbackend gateways\n")[2]
    assert "uri /ready?any=1 " in haproxy.partition("\nbackend ")[0]
    clusters = yaml.safe_load((DEPLOY / "envoy" / "fleet.yaml").read_text())["static_resources"]["clusters"]
    probes = {one["name"]: one["health_checks"][0]["http_health_check"]["path"] for one in clusters}
    assert {name for name, path in probes.items() if path == "/ready?any=1"} == {
        "gateways",
        "gateways_by_session",
    }


def test_a_dead_server_costs_no_request(fleet: Proxy, servers: dict[str, Server]) -> None:
    """Also before the probe has seen it."""
    servers["serve-2"].close()
    assert {ask(fleet)[0] for _ in range(12)} == {200}


def test_the_drain_waits_for_what_runs_and_says_what_is_left(
    fleet: Proxy, servers: dict[str, Server]
) -> None:
    for server in servers.values():
        server.hold.clear()
    running = 'haproxy_server_current_sessions{proxy="http_least",server="serve-1"} 1'
    with asking(fleet, 3):
        wait_until(lambda: running in fleet.page(), "it")
        told = "drain: after 1 s 1 still run on serve-1\n"
        assert fleet.drain("serve-1", "--timeout", "1") == (1, told)
        for server in servers.values():
            server.hold.set()
        assert fleet.drain("serve-1") == (0, "")
    assert fleet.drain("serve-9") == (1, "drain: No such server.\n")


def test_a_drain_that_cannot_see_live_streams_is_no_success(fleet: Proxy, servers: dict[str, Server]) -> None:
    for text in ("http://serve-1:8002", "serve-1", "serve-1:8002/metrics"):
        code, told = fleet.drain("serve-1", "--metrics", text)
        assert (code, told.splitlines()[-1]) == (
            2,
            f"drain: error: argument --metrics: {text}: host:port is needed",
        )
    assert status(fleet, "serve-1") == "UP"
    other = servers["gateway-1"]
    assert fleet.drain("serve-1", "--metrics", other.address) == (0, "")
    other.ready = 404
    told = f"drain: no metrics page at {other.address}: HTTP 404\n"
    assert fleet.drain("serve-1", "--metrics", other.address) == (1, told)


def test_the_gateways_share_requests_and_a_session_stays(fleet: Proxy, servers: dict[str, Server]) -> None:
    url = f"http://{fleet.gateway}/v1/chat/completions"
    assert {CLIENT.post(url, content=b"{}").text for _ in range(12)} == {"gateway-1", "gateway-2"}
    headers = {"x-trimodal-session": "one"}
    assert len({CLIENT.post(url, content=b"{}", headers=headers).text for _ in range(12)}) == 1
    assert CLIENT.get(f"http://{fleet.gateway}/metrics").status_code == 404
    servers["gateway-1"].close()
    assert {CLIENT.post(url, content=json.dumps({})).text for _ in range(6)} == {"gateway-2"}
