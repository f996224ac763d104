"""Bad HTTP: requests that are none, or lie about their length. No tensor of them reaches a model."""

from __future__ import annotations

from tests.e2e.bad_input.wire import Row, Send, by_json

POST = b"POST /v2/models/llm/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
BODY = b'{"text_input": "x", "max_tokens": 2}'


def raw(headers: bytes, body: bytes = b"", *, leave: bool = False) -> Send:
    """A POST with these headers; `leave`: the client closes its side behind the last byte."""
    return lambda wire: wire.bytes(POST + headers + b"\r\n\r\n" + body, half_close=leave)


BARE = [
    ("Content-Length 10¹², then gone", raw(b"Content-Length: 1000000000000", leave=True), "closed"),
    ("Content-Length 100, 9 bytes, then gone", raw(b"Content-Length: 100", BODY[:9], leave=True), "closed"),
    ("Content-Length −5", raw(b"Content-Length: -5", BODY), "closed"),
    ("Content-Length a word", raw(b"Content-Length: many", BODY), "closed"),
    ("no Content-Length", raw(b"X: y"), "500"),
    ("a chunk of no length", raw(b"Transfer-Encoding: chunked", b"xyz\r\n", leave=True), "closed"),
    ("a header of 1 MB", raw(b"X: " + b"y" * 1_000_000), "closed"),
    ("TLS instead of HTTP", lambda wire: wire.bytes(b"\x16\x03\x01\x02\0 hello", half_close=True), "closed"),
]
SHARED_MEMORY = "/v2/systemsharedmemory/region/x/register"
PATHS = [
    ("unknown path", by_json("/v2/nothing", {}), "404", "Not Found"),
    ("unknown verb of a model", by_json("/v2/models/llm/sing", {}), "404", "Not Found"),
    ("unload without the key", by_json("/v2/repository/models/llm/unload", {}), "403", "restricted"),
    (
        "shared memory without the key",
        by_json(SHARED_MEMORY, {"key": "x", "byte_size": 9}),
        "403",
        "restricted",
    ),
]

ROWS = [
    *(Row("(server)", name, "TCP", send, status, own=False) for name, send, status in BARE),
    *(Row("(server)", name, "HTTP", send, *rest, own=False) for name, send, *rest in PATHS),
]
