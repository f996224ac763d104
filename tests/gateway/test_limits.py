"""What is too large, too slow, compressed or no HTTP, over plain sockets."""

from __future__ import annotations

import gzip
import json
import socket
import time

import httpx
import pytest

from tests.gateway.conftest import LIMIT_S, Serve
from trimodal.gateway.limits import MAX_VALUES

BODY = json.dumps({"model": "llm", "messages": [{"role": "user", "content": "hi"}]}).encode()
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"


def talk(url: str, *parts: bytes, pause: float = 0.0, most: float = LIMIT_S) -> tuple[int, dict[str, object]]:
    """Sends the parts; the status and the JSON of the answer, which must end the connection."""
    host, port = url.removeprefix("http://").split(":")
    answer = b""
    with socket.create_connection((host, int(port)), timeout=most) as connection:
        for part in parts:
            try:
                connection.sendall(part)
            except (BrokenPipeError, ConnectionResetError):
                break
            time.sleep(pause)
        try:
            while more := connection.recv(65_536):
                answer += more
        except ConnectionResetError:
            pass
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


def good(url: str) -> bool:
    headers = {"content-type": "application/json"}
    return httpx.post(f"{url}/v1/chat/completions", content=BODY, headers=headers).is_success


def test_a_body_that_is_too_large(serve: Serve) -> None:
    served = serve(max_body_bytes=10_000)
    status, error = talk(served.url, HEAD + b"Content-Length: 100000000\r\n\r\n")
    assert (status, error["code"]) == (413, "body_too_large"), "refused before it is sent"
    chunk = b"1000\r\n" + b" " * 0x1000 + b"\r\n"
    status, error = talk(served.url, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 5)
    assert (status, error["code"]) == (413, "body_too_large")
    assert good(served.url)


def test_a_body_of_too_many_values(serve: Serve) -> None:
    served = serve()
    url = f"{served.url}/v1/chat/completions"
    for values in (["a"] * MAX_VALUES, [{}] * MAX_VALUES, {str(key): 0 for key in range(MAX_VALUES)}):
        answer = httpx.post(url, json={"model": "llm", "stop": values})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "too_many_values")
    # Texts may hold as many signs as they like, quoted and escaped ones too.
    text = '[{,"\\' * MAX_VALUES
    chat = {"model": "llm", "messages": [{"role": "user", "content": text}]}
    assert httpx.post(url, json=chat).is_success
    assert served.triton.requests[-1].model == "llm"
    sound = b"," * (2 * MAX_VALUES)  # no JSON: a recording, or what is said to be one
    answer = httpx.post(
        f"{served.url}/v1/audio/transcriptions", data={"model": "speech"}, files={"file": sound}
    )
    assert answer.json()["error"]["code"] == "invalid_audio"


def test_a_body_that_is_too_slow(serve: Serve) -> None:
    served = serve(body_timeout_s=0.3)
    status, error = talk(served.url, HEAD + b"Content-Length: 500\r\n\r\n{")
    assert (status, error["type"]) == (408, "timeout_error")
    assert "within 0.3 s" in str(error["message"])
    assert good(served.url)


def test_headers_that_are_too_slow(serve: Serve) -> None:
    served = serve(header_timeout_s=0.3)
    status, error = talk(served.url, *[b"G", b"E", b"T", b" /", b"health"] * 9, pause=0.1)
    assert (status, error["type"]) == (408, "timeout_error")
    assert "within 0.3 s" in str(error["message"])
    assert good(served.url)


def test_a_second_request_of_a_connection_has_the_same_bounds(serve: Serve) -> None:
    served = serve(header_timeout_s=0.3)
    whole = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=LIMIT_S) as connection:
        connection.sendall(whole)
        answer = b""
        while b"chat.completion" not in answer or not answer.endswith(b"}"):
            answer += connection.recv(65_536)
        connection.sendall(b"POST /v1/chat")
        rest = b""
        while more := connection.recv(65_536):
            rest += more
    assert rest.startswith(b"HTTP/1.1 408")


def test_a_flood_of_headers(serve: Serve) -> None:
    served = serve(max_header_bytes=4096)
    flood = [b"X-%d: " % index + b"a" * 100 + b"\r\n" for index in range(1000)]
    status, _ = talk(served.url, b"GET /health HTTP/1.1\r\nHost: a\r\n", *flood)
    assert status == 431
    status, _ = talk(served.url, b"GET /" + b"a" * 10_000)
    assert status == 431
    assert good(served.url)


@pytest.mark.parametrize(
    "raw",
    [
        HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"NONSENSE\r\n\r\n",
    ],
    ids=["two framings", "two lengths", "negative", "bad chunk", "TLS", "version", "nonsense"],
)
def test_what_is_no_http_is_refused_and_nothing_behind_it_is_answered(serve: Serve, raw: bytes) -> None:
    served = serve(body_timeout_s=1.0, header_timeout_s=1.0)
    host, port = served.url.removeprefix("http://").split(":")
    answer = b""
    with socket.create_connection((host, int(port)), timeout=LIMIT_S) as connection:
        connection.sendall(raw)
        while more := connection.recv(65_536):
            answer += more
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 400")
    assert good(served.url)


def test_a_compressed_body(serve: Serve) -> None:
    served = serve()
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    answer = httpx.post(f"{served.url}/v1/chat/completions", content=gzip.compress(BODY), headers=headers)
    assert (answer.status_code, answer.json()["error"]["param"]) == (415, "content-encoding")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/nothing", 404), ("GET", "/v1/chat/completions", 405), ("DELETE", "/v1/models", 405)],
)
def test_paths_and_methods(serve: Serve, method: str, path: str, status: int) -> None:
    answer = httpx.request(method, f"{serve().url}{path}")
    assert answer.status_code == status
    assert path in answer.json()["error"]["message"]
