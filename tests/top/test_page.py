from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.doubles.http_server import Asked, answering
from tests.top.pages import llm, llm_text, served
from trimodal.errors import ServerError
from trimodal.top.page import Change, fetch, histogram_quantile, read_page

BUCKETS = {0.1: 10.0, 0.5: 60.0, 1.0: 90.0, math.inf: 100.0}


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        # histogram_quantile of promtool 2.42 over the same buckets.
        (0.05, 0.05),
        (0.5, 0.42),
        (0.75, 0.75),
        (0.9, 1.0),
        (0.99, 1.0),
    ],
)
def test_a_quantile_is_that_of_prometheus(q: float, expected: float) -> None:
    assert histogram_quantile(q, BUCKETS) == pytest.approx(expected)


def test_no_quantile_without_observations_or_without_the_last_bucket() -> None:
    assert histogram_quantile(0.5, {0.1: 0.0, math.inf: 0.0}) is None
    assert histogram_quantile(0.5, {0.1: 3.0, 0.5: 4.0}) is None
    assert histogram_quantile(0.5, {}) is None


def test_only_what_came_between_the_looks_counts() -> None:
    change = served(100)
    assert change.rate("trimodal_llm_requests_total", outcome="stop") == 10
    assert change.quantile(0.5, "trimodal_llm_ttft_seconds") == pytest.approx(0.1)
    assert change.quantile(0.75, "trimodal_llm_ttft_seconds") == pytest.approx(0.55)
    assert change.mean("trimodal_llm_ttft_seconds") == 1


def test_a_restarted_server_counts_from_zero() -> None:
    change = Change(llm(0.0, 1000), llm(10.0, 40))
    assert change.rate("trimodal_llm_requests_total", outcome="stop") == 4


def test_a_series_that_appears_counts_whole() -> None:
    before = read_page("# TYPE x counter\n", 0.0)
    after = read_page('# TYPE x counter\nx_total{a="1"} 5\n', 5.0)
    assert Change(before, after).rate("x_total") == 1


def test_counters_of_triton_keep_their_names() -> None:
    assert served().rate("nv_inference_request_success", model="llm") == 10
    assert served().after.values("nv_inference_request_success", "model") == ["llm"]


def answer(request: Asked) -> tuple[int, bytes]:
    may = request.headers["authorization"] == "Bearer right"
    pages = {"/metrics": llm_text(7), "/html": "<html>{not metrics", "/keys": ""}
    if request.path == "/keys" and not may:
        return 401, b""
    return (200, pages[request.path].encode()) if request.path in pages else (404, b"")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with answering(answer) as port:
        yield f"http://127.0.0.1:{port}"


def test_a_page_is_fetched(url: str) -> None:
    page = fetch(f"{url}/metrics", timeout=5)
    assert page.total("nv_inference_request_success") == 7
    assert not fetch(f"{url}/keys", timeout=5, key="right").samples


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/none", "HTTP 404"),
        ("/keys", "HTTP 401, it wants an operator’s key"),
        ("/html", "no page of metrics"),
    ],
)
def test_what_is_no_page_is_told(url: str, path: str, sentence: str) -> None:
    with pytest.raises(ServerError, match=sentence):
        fetch(url + path, timeout=5)


def test_a_port_of_grpc_is_told_without_its_bytes() -> None:
    """They were shown, and did to a terminal what such bytes do."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"\0\0\x18\x04\0\0\0\0\0\0\x04\0\x3f\xff\xff\x1b[2J\r\n")

        with ThreadPoolExecutor(1) as threads:
            answered = threads.submit(answer)
            with pytest.raises(ServerError, match=r"^its answer is not HTTP, or was cut off$"):
                fetch(f"http://127.0.0.1:{listening.getsockname()[1]}/metrics", timeout=5)
            answered.result()


def test_nobody_there_is_told() -> None:
    with pytest.raises(ServerError, match="connection refused"):
        fetch("http://127.0.0.1:1/metrics", timeout=5)
