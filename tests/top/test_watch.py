from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from tests.doubles.http_server import Asked, answering
from tests.top.pages import gateway, llm
from trimodal.errors import ServerError
from trimodal.top.page import Page
from trimodal.top.watch import Target, Top, health_page, live, metrics_url, once, target


class Looks:
    """Answers with one page after the other; None: nobody is there."""

    def __init__(self, *pages: Page | None) -> None:
        self.pages = list(pages)

    def __call__(self) -> Page:
        page = self.pages.pop(0)
        if page is None:
            raise ServerError("connection refused")
        return page


def top(*pages: Page | None, ready: bool | None = True) -> Top:
    told = {} if ready is None else {"llm": ready}
    return Top(Target("server", "here:8002", Looks(*pages), clock=lambda: 7.0), None, lambda: told)


def console() -> Console:
    return Console(width=80, color_system=None, record=True, file=io.StringIO(), force_terminal=True)


def test_a_server_goes_away_and_comes_back() -> None:
    view = top(llm(0, 10), llm(10, 30), None, None, llm(40, 5), llm(50, 25))
    rates, away = [], []
    for _ in range(6):
        shown = view.look()
        rates.append(shown.models[0].requests_per_s if shown.models else "away")
        away.append(view.sources[0].away)
    # Restarted meanwhile: what it was before is not compared with.
    assert rates == [None, 2, "away", "away", None, 2]
    assert away == ["", "", "connection refused", "connection refused", "", ""]
    assert view.sources[0].since == 0.0


def test_readiness_is_the_gateway_s_where_there_is_one() -> None:
    view = Top(
        Target("server", "here:8002", Looks(llm(0, 1))),
        Target("gateway", "here:8080", Looks(gateway(0, ready=0))),
        lambda: {"llm": True},
    )
    assert view.look().models[0].ready is False
    assert top(llm(0, 1), ready=False).look().models[0].ready is False
    assert top(llm(0, 1), ready=None).look().models[0].ready is None


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"models": {"llm": {"ready": false, "reason": "its process died"}}}', {"llm": False}),
        (b'{"models": []}', {}),
        (b"<html>", {}),
        (b"[]", {}),
    ],
)
def test_the_health_page_is_read(body: bytes, told: dict[str, bool]) -> None:
    def answer(request: Asked) -> tuple[int, bytes]:
        assert request.path == "/health"
        return 200, body

    with answering(answer) as port:
        assert health_page(f"127.0.0.1:{port}")() == told
    assert health_page(f"127.0.0.1:{port}")() == {}  # nobody is there


def test_the_server_s_page_is_not_a_gateway_s() -> None:
    with answering(lambda request: (200, b"nv_inference_count 1.0\n")) as port:
        looked = {name: target(name, f"127.0.0.1:{port}") for name in ("server", "gateway")}
        for one in looked.values():
            one.look()
    assert looked["server"].source.away == ""
    assert looked["gateway"].source.away == "its page is not of a gateway: it may be one for --url"


def test_once_prints_one_picture_of_an_interval() -> None:
    screen, slept = console(), []
    once(top(llm(0, 0), llm(10, 100)), screen, interval=10, as_json=False, sleep=slept.append)
    assert "10 requests/s" in screen.export_text()
    assert slept == [10]


def test_once_as_json() -> None:
    out = Console(width=40, record=True, file=io.StringIO())
    once(top(llm(0, 0), llm(10, 100)), out, interval=10, as_json=True, sleep=lambda seconds: None)
    told = json.loads(out.export_text())
    assert told["sources"][0] == {"name": "server", "address": "here:8002", "away": "", "since": 0.0}
    assert told["llm"]["requests_per_s"] == 10
    assert told["speech"] is None


def test_once_without_a_server_is_a_failure() -> None:
    with pytest.raises(ServerError, match=r"no metrics at here:8002: connection refused"):
        once(top(None, None), console(), interval=1, as_json=True, sleep=lambda seconds: None)


def test_ctrl_c_ends_the_view() -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    live(top(llm(0, 0), None, llm(9, 3)), console(), interval=0.5, sleep=sleep)
    assert slept == [0.5] * 3


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("localhost:8002", "http://localhost:8002/metrics"),
        ("http://a:1/", "http://a:1/metrics"),
        ("https://a/prometheus/metrics", "https://a/prometheus/metrics"),
        ("[::1]:8002", "http://[::1]:8002/metrics"),
    ],
)
def test_addresses(text: str, url: str) -> None:
    assert metrics_url(text) == url


@pytest.mark.parametrize(
    "text", ["", "a:b", "ftp://a", "http://", ":8002", "a:99999", "[::1:8002", "a..b:8002"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ServerError, match="is no address: write host:port"):
        metrics_url(text)
