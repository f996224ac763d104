"""Which server a conversation belongs to."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from trimodal.client.transports.base import Request
from trimodal.client.transports.tensors import strings
from trimodal.gateway.upstreams.affinity import beginning, most_running, ranked

SERVERS = ["10.0.0.1:8001", "10.0.0.2:8001", "10.0.0.3:8001", "10.0.0.4:8001"]
SYSTEM = {"role": "system", "content": "You are terse."}
QUESTION = {"role": "user", "content": "What is a lambda?"}


def chat(*messages: dict[str, str]) -> Request:
    return Request("llm", {"messages": strings([json.dumps(messages).encode()])})


def test_a_conversation_keeps_its_key_while_it_grows() -> None:
    first = beginning(chat(SYSTEM, QUESTION))
    answer = {"role": "assistant", "content": "A small function."}
    assert first == beginning(chat(SYSTEM, QUESTION, answer, {"role": "user", "content": "Why?"}))
    assert first != beginning(chat(SYSTEM, {"role": "user", "content": "What is a list?"}))
    assert first != beginning(chat(QUESTION))


def test_what_is_equal_for_long_goes_together() -> None:
    document = "x" * 5000
    one, two = (chat({"role": "user", "content": document + question}) for question in ("why?", "how?"))
    assert beginning(one) == beginning(two)


def test_a_talk_with_the_assistant_keeps_its_key_too() -> None:
    first = Request("assistant", {"text_input": strings([b"What is this?"])})
    history = [{"role": "user", "content": "What is this?"}, {"role": "assistant", "content": "A seven."}]
    then = Request(
        "assistant",
        {"history": strings([json.dumps(history).encode()]), "text_input": strings([b"Are you sure?"])},
    )
    assert beginning(first) == beginning(then) == b"What is this?"


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"7", b'["a"]', b'[{"role": "user"}]', b"\xff"])
def test_a_chat_that_the_model_will_refuse_has_no_key(raw: bytes) -> None:
    assert beginning(Request("llm", {"messages": strings([raw])})) == b""


def test_only_the_share_of_a_server_that_leaves_moves() -> None:
    keys = [f"conversation {number}".encode() for number in range(2000)]
    before = {key: ranked(key, SERVERS)[0] for key in keys}
    counts = Counter(before.values())
    assert all(400 < counts[server] < 600 for server in SERVERS), "even shares"
    left = SERVERS[:2] + SERVERS[3:]
    for key in keys:
        after = ranked(key, left)[0]
        assert after == before[key] or before[key] == SERVERS[2]
    assert {ranked(key, left)[0] for key in keys if before[key] == SERVERS[2]} == set(left)


@pytest.mark.parametrize(("running", "servers", "most"), [(0, 2, 4), (7, 2, 5), (99, 4, 32)])
def test_the_load_is_bounded(running: int, servers: int, most: int) -> None:
    assert most_running(running, servers) == most
