"""What is too large, too slow, compressed, no HTTP, or of another site's page."""

from __future__ import annotations

import json
import math
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import openai
import pytest
from pydantic import ValidationError
from python_multipart.multipart import MultipartParser

from tests.gateway.conftest import ANSWER, CHAT, HEAD, LIMIT_S, Serve, connect, fake_triton, held, raw_chat
from trimodal.gateway import limits, server
from trimodal.gateway.app import FORM_PIECE
from trimodal.gateway.errors import ApiError
from trimodal.gateway.keys import Key, add_key
from trimodal.gateway.limits import HELD_BODIES, MAX_VALUES, JsonText
from trimodal.gateway.server import PIPELINED
from trimodal.gateway.settings import GatewaySettings

OPERATOR = Key(name="op", operator=True, requests_per_minute=1)
BODY = json.dumps({"model": "llm", "messages": [{"role": "user", "content": "hi"}]}).encode()


UPGRADE = (
    b"Host: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
)


def talk(url: str, *parts: bytes, pause: float = 0.0) -> tuple[int, dict[str, object]]:
    """Sends the parts; the status and the JSON of the answer, which must end the connection."""
    head, _, body = everything(url, *parts, pause=pause).partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


def everything(url: str, *parts: bytes, pause: float = 0.0) -> bytes:
    """Sends the parts; what comes until the end of the connection."""
    with connect(url) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
        return rest(connection)


def rest(connection: socket.socket) -> bytes:
    """What comes until its end."""
    answer = b""
    with suppress(ConnectionResetError):
        while more := connection.recv(65_536):
            answer += more
    return answer


def until(connection: socket.socket, end: bytes) -> bytes:
    """What comes up to these bytes, and what came with them."""
    answer = b""
    while end not in answer:
        more = connection.recv(65_536)
        assert more, answer
        answer += more
    return answer


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


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-be", "utf-16-le", "utf-32", "latin-1"])
def test_json_in_other_codings_is_not_read(serve: Serve, coding: str) -> None:
    """In UTF-16 the bytes of ∀ and of a quotation mark are the same: values could not be counted."""
    body = json.dumps(
        {"model": "llm", "stop": ["é" if coding == "latin-1" else "∀"] * 10}, ensure_ascii=False
    )
    headers = {"content-type": "application/json"}
    answer = httpx.post(f"{serve().url}/v1/chat/completions", content=body.encode(coding), headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")


def test_json_is_looked_at_while_it_comes(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million values were counted at once: 15 ms in which no other client got a token."""
    pieces: list[int] = []
    add = JsonText.add

    def noted(text: JsonText, raw: bytes, *, last: bool = False) -> None:
        pieces.append(len(raw))
        add(text, raw, last=last)

    monkeypatch.setattr(JsonText, "add", noted)
    served = serve()
    sent = HEAD + b"Content-Length: 30000000\r\n\r\n[" + b"{}," * 10**6
    assert talk(served.url, sent)[1]["code"] == "too_many_values", "while it comes"
    assert max(pieces) < 1 << 20
    assert sum(pieces) < 1 << 20, "nothing is looked at after the first that is too much"


@pytest.mark.parametrize(("size", "most"), [(1, 400), (2, 400), (3, 400), (7, 400), (10**6, MAX_VALUES)])
def test_values_are_counted_alike_in_pieces_of_any_size(
    size: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_VALUES", most)
    for one in ("a", 'a"b', "\\", '\\"', "[{,", "é∀😀", ""):
        for value in ([one] * most, {f"{one}{key}": [one] for key in range(most // 2)}):
            raw = json.dumps(value, ensure_ascii=len(one) > 2).encode()
            assert _counts(raw, size), one
            assert not _counts(b"[" + raw + b"]", size), one


def _counts(raw: bytes, size: int) -> bool:
    text = JsonText()
    try:
        for at in range(0, len(raw), size):
            text.add(raw[at : at + size], last=at + size >= len(raw))
    except ApiError:
        return False
    return True


def test_json_that_ends_within_a_sign_or_is_all_quotes() -> None:
    for raw, code in (('["∀'.encode()[:-1], "invalid_json"), (b'"' * 10**6, "too_many_values")):
        with pytest.raises(ApiError) as caught:
            JsonText().add(raw, last=True)
        assert caught.value.code == code


def test_a_short_body_in_chunks_that_is_refused_gets_its_answer_and_keeps_the_connection(
    serve: Serve, file: Path
) -> None:
    """What does not say its length was cut off in the middle, though it was short."""
    key = add_key(file, Key(name="a", requests_per_minute=2))
    url = serve(keys=file).url
    head = HEAD + b"Transfer-Encoding: chunked\r\nAuthorization: Bearer " + key.encode() + b"\r\n\r\n"
    with connect(url) as connection:
        for first, status in ((b"\0", 400), (b"[" + b"," * MAX_VALUES, 400), (b"{", 429)):
            connection.sendall(head + b"%x\r\n%b\r\n" % (len(first), first))
            time.sleep(0.05)
            connection.sendall(b"1\r\n \r\n0\r\n\r\n")
            answer = until(connection, b"}}")
            assert answer.startswith(b"HTTP/1.1 %d" % status)
            assert b"connection: close" not in answer


def test_a_body_that_is_refused_takes_no_room(serve: Serve) -> None:
    served = serve(max_body_bytes=100_000)
    with ExitStack() as stack:
        for _ in range(2 * HELD_BODIES):
            one = stack.enter_context(connect(served.url))
            one.sendall(HEAD + b"Content-Length: 99999\r\n\r\n" + b"," * 99_990)
        assert good(served.url)
        one.sendall(b"," * 9)
        assert b"HTTP/1.1 400" in one.recv(4096), "it was not ended to make room"


def test_the_key_is_looked_at_before_the_body_is_there(serve: Serve, file: Path) -> None:
    add_key(file, Key(name="a"))
    status, error = talk(serve(keys=file).url, HEAD + b"Content-Length: 10000\r\n\r\n{")
    assert (status, error["code"]) == (401, "no_api_key")


def test_bodies_that_are_never_whole_keep_nobody_out(serve: Serve) -> None:
    served = serve(max_body_bytes=10_000)
    with ExitStack() as stack:
        slow = []
        for _ in range(HELD_BODIES + 1):
            slow.append(stack.enter_context(connect(served.url)))
            slow[-1].sendall(HEAD + b"Content-Length: 9999\r\n\r\n" + b" " * 9900)
        assert b"HTTP/1.1 408" in slow[0].recv(4096), "the oldest made room for the last"
        body = BODY + b" " * 9000
        headers = {"content-type": "application/json"}
        for _ in range(3):
            assert httpx.post(f"{served.url}/v1/chat/completions", content=body, headers=headers).is_success


def test_bodies_of_running_requests_are_bounded(serve: Serve) -> None:
    enough = threading.Event()
    served = serve(fake_triton(llm=held(enough)), max_body_bytes=2000)
    body = BODY + b" " * (1990 - len(BODY))
    headers = {"content-type": "application/json"}

    def ask(_: int) -> int:
        status = httpx.post(
            f"{served.url}/v1/chat/completions", content=body, headers=headers, timeout=LIMIT_S
        )
        enough.set()  # the one too many is the first to be answered
        return status.status_code

    with ThreadPoolExecutor(HELD_BODIES + 1) as threads:
        assert sorted(threads.map(ask, range(HELD_BODIES + 1))) == [200] * HELD_BODIES + [503]


@pytest.mark.parametrize(
    ("limit", "parts"),
    [
        ("body_timeout_s", [HEAD + b"Content-Length: 500\r\n\r\n{"]),
        ("header_timeout_s", [b"G", b"E", b"T", b" /", b"health"] * 9),
    ],
    ids=["body", "headers"],
)
def test_what_is_too_slow(serve: Serve, limit: str, parts: list[bytes]) -> None:
    served = serve(**{limit: 0.3})
    status, error = talk(served.url, *parts, pause=0.1)
    assert (status, error["type"]) == (408, "timeout_error")
    assert "within 0.3 s" in str(error["message"])
    assert good(served.url)


def test_a_second_request_of_a_connection_has_the_same_bounds(serve: Serve) -> None:
    served = serve(header_timeout_s=0.3)
    with connect(served.url) as connection:
        connection.sendall(raw_chat())
        assert until(connection, b'"trimodal":').endswith(b"}")
        connection.sendall(b"POST /v1/chat")
        assert rest(connection).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    ("behind", "ahead"),
    [
        (b"\r\n", b""),
        (b"GET /health HT", b""),
        (b"no HTTP\0\r\n\r\n", b""),
        (b"GET /" + b"a" * 10_000, b""),
        (b"GET /v1/realtime HTTP/1.1\r\n" + UPGRADE, b""),
        (b"", b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"),
    ],
    ids=["line end", "beginning", "no HTTP", "large headers", "WebSocket", "last of two"],
)  # fmt: skip
def test_nothing_is_written_into_an_answer(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, behind: bytes, ahead: bytes
) -> None:
    """A line end after a body brought a 408 into its stream, and many idle connections a 503."""
    release = threading.Event()
    monkeypatch.setattr(server, "HEADER_BYTES", 4096)
    served = serve(
        fake_triton(llm=held(release, "word ")), header_timeout_s=0.1 if behind else 10.0, max_connections=3
    )
    with ExitStack() as opened:
        connection = opened.enter_context(connect(served.url))
        connection.sendall(ahead + raw_chat(stream=True))
        answer = until(connection, b"word")
        if behind:
            connection.sendall(behind)
            time.sleep(0.5)  # for the timer of headers
        else:
            idle = [opened.enter_context(connect(served.url)) for _ in range(3)]
            assert b"HTTP/1.1 503" in idle[0].recv(4096), "the oldest that waits made room"
        release.set()
        answer += until(connection, b"[DONE]")
        assert answer.count(b"HTTP/1.1 ") == 1 + bool(ahead)
        if len(behind) > 15:
            after = answer.partition(b"[DONE]")[2] + rest(connection)
            assert after.split() in ([], [b"0"]), "the last chunk, then its end"


def test_a_flood_of_headers(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEADER_BYTES", 4096)
    served = serve()
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
        b"POST /v1/realtime HTTP/1.1\r\n" + UPGRADE,
        b"GET /v1/realtime HTTP/1.1\r\nX-Long: " + b"a" * 8_192 + b"\r\n" + UPGRADE,
        b"GET /v1/realtime HTTP/1.1\r\n" + b"X-One: 1\r\n" * 129 + UPGRADE,
    ],
    ids=["two framings", "two lengths", "negative", "bad chunk", "TLS", "version", "nonsense",
         "upgrade by POST", "upgrade with a long header", "upgrade with many headers"],
)  # fmt: skip
def test_what_is_no_http_is_refused_and_nothing_behind_it_is_answered(serve: Serve, raw: bytes) -> None:
    """An upgrade that was no request for one was left open for ever, and a drain waited for it."""
    served = serve(body_timeout_s=1.0, header_timeout_s=1.0)
    answer = everything(served.url, raw)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 400")
    assert good(served.url)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/nothing", 404), ("GET", "/v1/chat/completions", 405), ("DELETE", "/v1/models", 405)],
)
def test_paths_and_methods(serve: Serve, method: str, path: str, status: int) -> None:
    answer = httpx.request(method, f"{serve().url}{path}")
    assert answer.status_code == status
    assert path in answer.json()["error"]["message"]


def test_probes_may_ask_for_the_head_alone(serve: Serve) -> None:
    url = serve().url
    for path in ("/health", "/ready", "/metrics", "/v1/models", "/v1/models/llm", "/"):
        answer = httpx.head(f"{url}{path}")
        assert (answer.status_code, answer.content) == (200, b""), path
        assert int(answer.headers["content-length"]) > 0
    assert "head" not in httpx.get(f"{url}/openapi.json").text.lower().partition('"components"')[0].split('"')


# Pages of other sites, at a gateway that asks for no key


CHAT_BODY = {"model": "llm", "messages": CHAT}


def post(url: str, key: str = "", **headers: str) -> tuple[int, str | None]:
    """Status and error code of a chat that comes with these headers."""
    headers |= {"authorization": f"Bearer {key}"} if key else {}
    answer = httpx.post(f"{url}/v1/chat/completions", json=CHAT_BODY, headers=headers)
    return answer.status_code, answer.json().get("error", {}).get("code")


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8080", "[::1]:8080", "192.168.1.5", "localhost", "gateway:8080", socket.gethostname()]
    + ["gateway.default.svc.cluster.local", "box.local:80", "API.Example.com"],
)
def test_names_that_no_page_elsewhere_can_have(serve: Serve, host: str) -> None:
    assert post(serve(allowed_hosts=("API.example.com",)).url, host=host) == (200, None)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "a.b.", "[::1"]
)
def test_dns_rebinding(serve: Serve, file: Path, host: str) -> None:
    """The page's own name resolves to this machine, so to its browser nothing is foreign."""
    served = serve(without_keys=True)
    rebound = {"host": host, "origin": f"http://{host}"}
    assert post(served.url, **rebound) == (403, "host_not_allowed")
    for path in ("v1/models", "ready", "metrics", "page/", "health"):
        assert httpx.get(f"{served.url}/{path}", headers=rebound).status_code == 403
    assert served.triton.requests == []
    assert post(serve(allowed_hosts=("*",)).url, host=host)[0] == 200
    # No page sends a key that it does not have.
    key = add_key(file, Key(name="a"))
    assert post(serve(keys=file).url, key, host="evil.example")[0] == 200


@pytest.mark.parametrize("origin", ["http://[", "good.example", "https://good.example/", "https://a b", ""])
def test_what_is_no_origin_is_refused_before_the_gateway_starts(origin: str) -> None:
    with pytest.raises(ValidationError, match="cors_origins"):
        GatewaySettings(cors_origins=(origin,))
    for good in ("*", "https://good.example", "http://[::1]:3000", "tauri://localhost"):
        assert GatewaySettings(cors_origins=(good,)).cors_origins == (good,)


@pytest.mark.parametrize(
    ("name", "value"),
    [*((name, math.inf) for name in ("body_timeout_s", "header_timeout_s", "silence_s", "drain_timeout_s")),
     ("max_connections", 10**21), ("body_timeout_s", math.nan)],
)  # fmt: skip
def test_bounds_that_are_none_are_refused(name: str, value: float) -> None:
    """No timer takes inf: the gateway started, and each request failed."""
    with pytest.raises(ValidationError, match=name):
        GatewaySettings(**{name: value})


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=a", "application/json"])
def test_posts_of_other_pages(serve: Serve, kind: str) -> None:
    """Plain text and forms are posted across origins without a preflight."""
    served = serve(cors_origins=("https://good.example",))
    for origin, status in (("https://evil.example", 403), ("null", 403), ("https://good.example", 400)):
        headers = {"origin": origin, "content-type": kind}
        answer = httpx.post(f"{served.url}/v1/audio/transcriptions", content=b"--a--", headers=headers)
        assert answer.status_code == status
    assert served.triton.requests == []
    assert httpx.get(f"{served.url}/v1/models", headers={"origin": served.url}).is_success


def test_a_page_that_is_let_in_reads_every_header(serve: Serve) -> None:
    """Those of limits, of the cache and of `retry-after-ms` were kept from it."""
    origin = "https://good.example"
    told = httpx.get(f"{serve(cors_origins=(origin,)).url}/v1/models", headers={"origin": origin}).headers
    assert told["access-control-allow-origin"] == origin
    named = "*, x-request-id, server-timing, retry-after, x-ignored-fields"
    assert told["access-control-expose-headers"] == named, "older browsers take the star for a name"


def test_idle_sockets_keep_nobody_out(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """1,200 that send nothing took all descriptors: everybody's connections were reset."""
    served = serve(max_connections=20)
    with httpx.Client() as client, ExitStack() as opened:
        assert client.get(f"{served.url}/v1/models").status_code == 200
        first, *_ = [opened.enter_context(connect(served.url)) for _ in range(60)]
        answer = first.recv(4096)
        assert b"503" in answer
        assert b"too many connections are open" in answer
        assert served.chat().choices[0].message.content == ANSWER
        # The connection that was known before is still there.
        assert client.get(f"{served.url}/v1/models").status_code == 200
    assert sum("20 connections are open" in record.message for record in caplog.records) == 1


def test_who_shows_no_key_keeps_nobody_out(serve: Serve, tmp_path: Path) -> None:
    """Connections that had asked for /health once were kept, and each new one was closed."""
    file = tmp_path / "keys.toml"
    key = add_key(file, Key(name="a"))
    served = serve(keys=file, max_connections=20)
    with ExitStack() as opened:
        for _ in range(30):
            client = opened.enter_context(httpx.Client())
            assert client.get(f"{served.url}/health").status_code == 200
        assert served.chat(key).choices[0].message.content == ANSWER


def test_connections_with_requests_are_not_closed(serve: Serve) -> None:
    release = threading.Event()
    served = serve(fake_triton(llm=held(release, "word ")), max_connections=3)
    streams = [served.chat(stream=True) for _ in range(3)]
    for stream in streams:
        next(iter(stream))
    with pytest.raises((openai.InternalServerError, openai.APIConnectionError)):
        served.chat()
    release.set()
    assert all(list(stream)[-1].choices[0].finish_reason == "stop" for stream in streams)


@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_a_request_that_offers_http_2_keeps_its_body(serve: Serve, pieces: int) -> None:
    """As Java's client does with every request: its body was dropped."""
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\nUpgrade: h2c\r\n"
    body = BODY[:-1] + b', "stop": "\\r\\nUpgrade: h2c\\r\\n"}'
    head = HEAD + offer + f"Content-Length: {len(body)}\r\n\r\n".encode()
    with connect(serve().url) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        cut = head.index(b"Content-Length")
        for part in ([head + body], [head, body], [head[:cut], head[cut:], body])[pieces - 1]:
            connection.sendall(part)
            time.sleep(0.05)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("path", ["/v1/models/", "/nothing/"])
def test_a_long_path_is_not_repeated(serve: Serve, path: str) -> None:
    answer = httpx.get(f"{serve().url}{path}{'a' * 50_000}")
    assert (answer.status_code, len(answer.content) < 1_000) == (404, True)


def test_requests_that_are_sent_ahead_are_bounded(serve: Serve) -> None:
    """Without a key 10 MB of them took 400 MB, and everybody a second."""
    served = serve()
    ahead = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
    answers = everything(
        served.url, ahead * PIPELINED + ahead.replace(b"a\r\n", b"a\r\nConnection: close\r\n")
    )
    assert answers.count(b"HTTP/1.1 200") == PIPELINED + 1
    answers = everything(served.url, ahead * 100_000)
    assert answers.count(b"HTTP/1.1") <= PIPELINED + 1
    assert good(served.url)


@pytest.mark.parametrize("name", ["host", "authorization"])
def test_headers_that_say_who_and_where_come_once(serve: Serve, name: str) -> None:
    twice = f"{name}: a\r\n{name}: b\r\n"
    answer = everything(serve().url, f"GET /v1/models HTTP/1.1\r\nHost: a\r\n{twice}\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 400")
    assert f"{name} is given more than once".encode() in answer


@pytest.mark.parametrize(
    ("method", "path", "counts"),
    [
        ("POST", "/sleep", True),
        ("POST", "/no/such/path", True),
        ("POST", "/v1/load_lora_adapter", True),
        ("PUT", "/v1/models", True),
        ("DELETE", "/v1/responses/x", True),
        ("GET", "/v1/models", False),
    ],
)
def test_a_body_counts_wherever_it_is_sent(
    serve: Serve, file: Path, method: str, path: str, counts: bool
) -> None:
    """Below other paths than /v1 a key without any requests left sent 32 MB on and on."""
    key, operator = add_key(file, Key(name="a", requests_per_minute=1)), add_key(file, OPERATOR)
    url = serve(keys=file).url

    def send(key: str, body: bytes = b"{}") -> int:
        headers = {"authorization": f"Bearer {key}"}
        return httpx.request(method, url + path, content=body, headers=headers).status_code

    if method == "DELETE":
        assert [send(key, b"") for _ in range(3)] == [404] * 3, "nothing is read of it"
    assert send(key) != 429
    assert (send(key) == 429) is counts
    if path in ("/sleep", "/v1/load_lora_adapter"):
        assert [send(operator) == 429 for _ in range(3)] == [False] * 3


def test_a_form_is_parsed_in_pieces(monkeypatch: pytest.MonkeyPatch, serve: Serve) -> None:
    """30 MB of line ends were parsed at once, for half a second."""
    pieces: list[int] = []
    write = MultipartParser.write

    def noted(parser: MultipartParser, data: bytes) -> int:
        pieces.append(len(data))
        return write(parser, data)

    monkeypatch.setattr(MultipartParser, "write", noted)
    answer = httpx.post(
        f"{serve().url}/v1/audio/transcriptions",
        data={"model": "speech"},
        files={"file": b"\r\n" * (5 * FORM_PIECE)},
    )
    assert answer.json()["error"]["code"] == "invalid_audio"
    assert max(pieces) <= FORM_PIECE
    assert sum(pieces) > 10 * FORM_PIECE
