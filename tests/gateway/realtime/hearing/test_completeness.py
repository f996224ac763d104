"""Whether the words so far are a whole sentence, by the token that would follow."""

from __future__ import annotations

import asyncio
import json

import pytest

from trimodal.client.client import Client
from trimodal.client.options import Options
from trimodal.client.transports.fake import FakeTransport, scripted
from trimodal.gateway.realtime.hearing.completeness import is_complete


def said(transport: FakeTransport) -> str:
    """The one message that was sent, a user's."""
    (request,) = transport.requests
    (message,) = json.loads(request.inputs["messages"][0])
    assert message["role"] == "user"
    return str(message["content"])


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
    assert said(transport) == "Where does he live", "what it ends with is not given away"
    assert (told["max_tokens"], told["continue_final_message"], told["tenant"]) == (1, True, b"mine")


@pytest.mark.parametrize(
    ("words", "told"),
    [("どこですか？", "どこですか"), ("他住在哪里。", "他住在哪里"), ("好！", "好"), ("はい、", "はい"),
     ("你好，", "你好"), ("वह कहाँ रहता है।", "वह कहाँ रहता है")],
)  # fmt: skip
def test_signs_of_other_scripts_are_not_given_away_either(words: str, told: str) -> None:
    transport = FakeTransport(llm=scripted("。"))
    assert asyncio.run(is_complete(Client(transport=transport), "llm", words, Options()))
    assert said(transport) == told


def test_of_a_long_turn_the_last_words_are_asked_about() -> None:
    transport = FakeTransport(llm=scripted("."))
    asyncio.run(is_complete(Client(transport=transport), "llm", "word " * 500 + "end.", Options()))
    assert said(transport) == "word " * 59 + "end"


def test_without_words_nothing_is_asked() -> None:
    transport = FakeTransport(llm=scripted("."))
    assert not asyncio.run(is_complete(Client(transport=transport), "llm", " …", Options()))
    assert transport.requests == []


@pytest.mark.parametrize(
    ("words", "told"),
    [("There is one other. In the conference.", "There is one other in the conference"),
     ("I'm sorry. I'm late. Can I come?", "I'm sorry I'm late can I come"), ("Wait. … yes.", "Wait … yes"),
     ("Yes. I, too. It is. I… I think so.", "Yes I, too it is I I think so")],
)  # fmt: skip
def test_where_whisper_ended_a_sentence_is_not_believed(words: str, told: str) -> None:
    transport = FakeTransport(llm=scripted("."))
    assert asyncio.run(is_complete(Client(transport=transport), "llm", words, Options()))
    assert said(transport) == told
