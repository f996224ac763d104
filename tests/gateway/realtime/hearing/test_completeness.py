"""Whether the words so far are a whole sentence, by the token that would follow."""

from __future__ import annotations

import asyncio

import pytest

from trimodal.client.client import Client
from trimodal.client.options import Options
from trimodal.client.transports.fake import FakeTransport, scripted
from trimodal.gateway.realtime.hearing.completeness import is_complete


@pytest.mark.parametrize(
    ("following", "complete"),
    [(".", True), (" ?", True), ("\n", True), ("", True), (",", False), (" the", False), ("-", False)],
)
def test_a_sentence_is_complete_where_its_end_would_follow(following: str, complete: bool) -> None:
    transport = FakeTransport(llm=scripted(following))
    asked = is_complete(Client(transport=transport), "llm", "Where does he live?", Options(tenant="mine"))
    assert asyncio.run(asked) is complete
    (request,) = transport.requests
    told = {name: value[0] for name, value in request.inputs.items()}
    assert told["text_input"] == b"Where does he live", "what it ends with is not given away"
    assert (told["max_tokens"], told["apply_chat_template"], told["tenant"]) == (1, False, b"mine")


@pytest.mark.parametrize(
    ("words", "told"),
    [("どこですか？", "どこですか"), ("他住在哪里。", "他住在哪里"), ("好！", "好"), ("はい、", "はい"),
     ("你好，", "你好"), ("वह कहाँ रहता है।", "वह कहाँ रहता है")],
)  # fmt: skip
def test_signs_of_other_scripts_are_not_given_away_either(words: str, told: str) -> None:
    transport = FakeTransport(llm=scripted("。"))
    assert asyncio.run(is_complete(Client(transport=transport), "llm", words, Options()))
    assert transport.requests[0].inputs["text_input"][0].decode() == told


def test_of_a_long_turn_the_last_words_are_asked_about() -> None:
    transport = FakeTransport(llm=scripted("."))
    asyncio.run(is_complete(Client(transport=transport), "llm", "word " * 500 + "end.", Options()))
    assert transport.requests[0].inputs["text_input"][0] == b"word " * 59 + b"end"


def test_without_words_nothing_is_asked() -> None:
    transport = FakeTransport(llm=scripted("."))
    assert not asyncio.run(is_complete(Client(transport=transport), "llm", " …", Options()))
    assert transport.requests == []
