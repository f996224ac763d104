"""The health page over real HTTP."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from tests.doubles.waiting import wait_until
from trimodal.errors import ServerError
from trimodal.server.launch import OPERATOR_HEADER
from trimodal.server.ports import choose
from trimodal.server.supervision.health_page import HealthServer
from trimodal.server.supervision.supervisor import Health, ModelHealth

WELL = Health(True, False, {"llm": ModelHealth(True)})
ILL = Health(False, False, {"llm": ModelHealth(False, "its process died", 1, 0.25)})


NOTHING = Health(False, False, {})


class Known:
    """In place of the supervisor: what it knows."""

    def __init__(self) -> None:
        self.told, self.alive = NOTHING, True

    def health(self) -> Health:
        return self.told

    def lost(self) -> dict[str, float]:
        return {name: model.lost_s_ago for name, model in self.told.models.items() if model.lost_s_ago}


class Copy:
    """In place of the repository that is served."""

    def __init__(self) -> None:
        self.times, self.wrong = 0, ""

    def refresh(self) -> None:
        self.times += 1
        if self.wrong:
            raise ServerError(self.wrong)


class Page:
    def __init__(self) -> None:
        self.known = Known()
        self.port = choose("127.0.0.1", {"--health-port": 0})["--health-port"]
        self.copy = Copy()
        self.server = HealthServer(
            "127.0.0.1",
            self.port,
            self.known,
            self.copy,
            http_port=8000,
            operator_key="secret",  # type: ignore[arg-type]
        )

    def get(self, path: str, method: str = "GET", key: str | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5.0)
        try:
            connection.request(method, path, headers={OPERATOR_HEADER: key} if key else {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()


@pytest.fixture
def page() -> Iterator[Page]:
    page = Page()
    yield page
    page.server.close()


def test_it_tells_what_works(page: Page) -> None:
    nothing = {"ready": False, "draining": False, "models": {}}
    assert page.get("/ready") == (503, nothing)  # it is loading
    assert page.get("/health") == (200, nothing)
    assert page.get("/live") == (200, {"live": True})
    page.known.told = WELL
    assert page.get("/ready")[0] == 200
    page.known.told = ILL
    llm = {"ready": False, "reason": "its process died", "lost": 1, "lost_s_ago": 0.25, "versions": {}}
    assert page.get("/ready") == (503, {"ready": False, "draining": False, "models": {"llm": llm}})
    assert page.get("/ready", "HEAD") == (503, None)
    assert page.get("/lost") == (200, {"llm": 0.25})
    page.known.alive = False
    assert page.get("/live") == (503, {"live": False})


def test_other_requests_are_refused_and_leave_it_alone(page: Page) -> None:
    page.known.told = WELL
    assert page.get("/v2/health/ready")[0] == 404
    with socket.create_connection(("127.0.0.1", page.port), 5.0) as broken:
        broken.sendall(b"\x00\x01 nonsense\r\n\r\n")
        broken.recv(100)
    with socket.create_connection(("127.0.0.1", page.port), 5.0):  # one that asks nothing holds nobody up
        assert page.get("/ready")[0] == 200


def test_a_copy_is_made_again_for_the_operator_alone(page: Page) -> None:
    assert page.get("/refresh", "POST")[0] == 401
    assert page.get("/refresh", "POST", "other")[0] == 401
    assert page.get("/ready", "POST", "secret")[0] == 404
    assert page.get("/refresh") == (200, {"http_port": 8000}), "whose copy it is, is no secret"
    assert page.copy.times == 0
    assert page.get("/refresh", "POST", "secret") == (200, {})
    page.copy.wrong = "llm/config.pbtxt is not valid"
    assert page.get("/refresh", "POST", "secret") == (409, {"error": "llm/config.pbtxt is not valid"})


@pytest.mark.parametrize("length", ["60000", "999999", "-1", "many"])
def test_a_body_is_read_before_the_answer_as_its_end_would_reset_it(page: Page, length: str) -> None:
    with socket.create_connection(("127.0.0.1", page.port), 5.0) as one:
        one.sendall(f"POST /refresh HTTP/1.0\r\nContent-Length: {length}\r\n\r\n".encode())
        if length.isdecimal():
            one.settimeout(0.2)
            with pytest.raises(TimeoutError):  # it waits for the body
                one.recv(1)
            one.settimeout(5.0)
            one.sendall(b"x" * min(int(length), 1 << 16))
        told = b"".join(iter(lambda: one.recv(4096), b""))
    assert b" 401 " in told.splitlines()[0]
    assert told.endswith(b'"}\n')


def test_where_it_cannot_be(page: Page) -> None:
    for host, port in (("127.0.0.1", page.port), ("203.0.113.1", 0), ("no-such-host.invalid", 0)):
        with pytest.raises(ServerError, match=f"the health page cannot be on {host}, port {port}: "):
            HealthServer(host, port, Known(), Copy(), http_port=8000, operator_key="")  # type: ignore[arg-type]


def test_a_page_without_a_thread_leaves_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    port = choose("127.0.0.1", {"--health-port": 0})["--health-port"]
    start = Mock(side_effect=RuntimeError("can't start new thread"))
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError) as kept:  # with all that its traceback holds
        HealthServer("127.0.0.1", port, Known(), Copy(), http_port=8000, operator_key="")  # type: ignore[arg-type]
    assert kept.tb
    socket.create_server(("127.0.0.1", port)).close()


def test_what_fails_in_it_is_in_the_log(
    page: Page, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection ended without a word."""
    monkeypatch.setattr(page.known, "health", lambda: 1 // 0)
    with pytest.raises(http.client.RemoteDisconnected):
        page.get("/ready")
    wait_until(lambda: "ZeroDivisionError" in caplog.text, "the log")
    assert "the health page failed on a request" in caplog.text
