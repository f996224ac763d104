"""Streams in silence, and readers that do not read."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.doubles.waiting import wait_until
from tests.gateway.conftest import CHAT, LIMIT_S, Serve, connect, fake_triton, held, raw_chat
from trimodal.client.client import Client
from trimodal.client.transports.fake import llm_outputs
from trimodal.gateway import answering
from trimodal.gateway.access import Caller
from trimodal.gateway.keys import Key
from trimodal.gateway.openai.chat import Chat, Completion
from trimodal.gateway.openai.conversation import FindingsCache
from trimodal.gateway.openai.responses.reply import Reply
from trimodal.gateway.openai.responses.request import ResponseRequest
from trimodal.gateway.openai.responses.store import ResponseStore
from trimodal.gateway.openai.schemas import ChatRequest, CompletionRequest
from trimodal.gateway.quota import KeyUsage

CALLER = Caller(Key(name="a", hash="sha256:" + "0" * 64), "r1")
MUCH = 10_000  # pieces of 10 kB: more than the buffers of two sockets hold


def test_silence_is_broken_by_a_comment(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "PING_S", 0.1)
    monkeypatch.setattr(answering, "_CHECK_S", 0.05)
    go_on = threading.Event()
    body, text = {"model": "llm", "messages": CHAT, "stream": True}, ""
    served = serve(fake_triton(llm=held(go_on, "one")))
    with httpx.stream("POST", f"{served.url}/v1/chat/completions", json=body, timeout=LIMIT_S) as answer:
        for piece in answer.iter_text():
            text += piece
            if text.count(": ping\n\n") >= 2:
                go_on.set()
    first, last = text.index('"one"'), text.index('"end"')
    assert text[first:last].count(": ping\n\n") >= 2
    assert text.endswith("data: [DONE]\n\n")


def test_nothing_is_sent_before_the_first_token(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "PING_S", 0.1)
    monkeypatch.setattr(answering, "_CHECK_S", 0.05)

    async def late(request):  # type: ignore[no-untyped-def]
        await asyncio.sleep(0.5)
        yield llm_outputs("one", "stop")

    body = {"model": "llm", "messages": CHAT, "stream": True}
    answer = httpx.post(f"{serve(fake_triton(llm=late)).url}/v1/chat/completions", json=body)
    assert answer.text.startswith("data: ")
    monkeypatch.setattr(answering, "HEAD_S", 0.1)
    answer = httpx.post(f"{serve(fake_triton(llm=late)).url}/v1/chat/completions", json=body)
    assert answer.text.startswith(": ping"), "but for so long that a proxy would give up"


def test_a_client_that_does_not_read_holds_little_and_ends_with_its_connection(serve: Serve) -> None:
    made = 0

    async def much(request):  # type: ignore[no-untyped-def]
        nonlocal made
        while True:
            made += 1
            yield llm_outputs("x" * 10_000)

    served = serve(fake_triton(llm=much))
    with connect(served.url) as connection:
        connection.sendall(raw_chat(stream=True))
        connection.recv(1000)
        before = 0
        while before < made < MUCH:
            before = made
            time.sleep(0.5)
        assert made < MUCH, "what nobody reads is not made"
    wait_until(lambda: len(served.triton.cancelled) == 1, "the generation ends")


@pytest.mark.parametrize(
    "make",
    [
        lambda client: Chat(ChatRequest(model="llm", messages=CHAT), client, CALLER, FindingsCache()),
        lambda client: Chat(ChatRequest(model="llm", messages=CHAT, n=2), client, CALLER, FindingsCache()),
        lambda client: Completion(CompletionRequest(model="llm", prompt="hi"), client, CALLER),
        lambda client: Reply(
            ResponseRequest(model="llm", input="hi"), client, CALLER, FindingsCache(), ResponseStore("memory")
        ),
    ],
    ids=["chat", "two choices", "completion", "response"],
)
async def test_what_is_left_before_it_asks_for_more_is_charged(make: Callable[[Client], Any]) -> None:
    """Its tokens were summed up when they had been charged: as of a reader that does not read."""
    usage = KeyUsage({})
    events = make(Client(transport=fake_triton())).events(usage)
    await anext(events)
    await events.aclose()
    assert usage.tokens


@pytest.mark.parametrize(
    ("path", "stream", "end"),
    [
        ("/v1/chat/completions", True, b"data: [DONE]\n\n"),
        ("/v1/chat/completions", False, b"}"),
        ("/v1/responses", True, b"\n\n"),
        ("/nowhere", False, b"}"),
    ],
)
def test_http_1_0_gets_no_chunks(serve: Serve, path: str, stream: bool, end: bytes) -> None:
    body = json.dumps({"model": "llm", "messages": CHAT, "input": "hi", "stream": stream}).encode()
    head = f"POST {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with connect(serve().url) as connection:
        connection.sendall(head.encode() + body)
        with connection.makefile("rb") as answer:
            told, _, contents = answer.read().partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in told.lower()
    assert b"connection: close" in told.lower()
    assert contents.endswith(end), "and it ends with the connection"
    if stream:
        assert all(line[:6] in (b"", b"data: ", b"event:") for line in contents.split(b"\n"))
    else:
        assert f"content-length: {len(contents)}".encode() in told.lower()
        json.loads(contents)


@pytest.mark.parametrize("path", ["/metrics", "/ready", "/v1/models", "/"])
def test_http_1_0_reads_every_page_to_its_end(serve: Serve, path: str) -> None:
    with connect(serve().url) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        with connection.makefile("rb") as answer:
            told, _, contents = answer.read().partition(b"\r\n\r\n")
    assert told.startswith(b"HTTP/1.1 200 "), told
    assert b"transfer-encoding" not in told.lower()
    assert contents
