"""Answers by sentence, for a speech synthesiser."""

from __future__ import annotations

import pytest

from tests.gateway.conftest import Serve, fake_triton
from tests.gateway.realtime.conftest import Dial
from tests.gateway.realtime.openai.test_conversation import item
from trimodal.client.transports.fake import scripted
from trimodal.gateway.realtime.openai.sentences import MOST, SentenceCutter


@pytest.mark.parametrize(
    "sentences",
    [
        ["Hello there. ", "It is 3.14 now! ", "Is it?"],
        ["Mr. J. Dashwood said (e.g. to her) “No.” ", "She left."],
        ["A list:\n", "- one\n", "- two"],
        ["今日は。", "元気？", "はい"],
        ["1. First. ", "2. Second. ", "It is 42. ", "**3.** Third."],
        ["Steps:\n", "1. Mix.\n", "10. Bake, then eat."],
        ["A.\n\n", "B\n\n", "C"],
        ["\n\nOne. ", "B"],
        ["「元気。」と。", "「元気。」", "はい。"],
        ["“No!” she said. ", "Why?! ", "Who is J.? ", "Me... ", "so"],
        ["no end"],
        [],
    ],
)
@pytest.mark.parametrize("size", [1, 5, 999])
def test_a_sentence_is_cut_where_it_ends_however_its_text_comes(sentences: list[str], size: int) -> None:
    cutter, text = SentenceCutter(), "".join(sentences)
    parts = [part for at in range(0, len(text), size) for part in cutter.push(text[at : at + size])]
    assert [*parts, *cutter.rest()] == sentences
    assert cutter.rest() == []


@pytest.mark.parametrize("text", ["!" * 5_000, ".)" * 3_000, "a.b." * 2_000, "\n" * 5_000, "word " * 1_000])
@pytest.mark.parametrize("size", [7, 9_999])
def test_of_what_has_no_end_a_bounded_part_is_held(text: str, size: int) -> None:
    cutter = SentenceCutter()
    parts = [part for at in range(0, len(text), size) for part in cutter.push(text[at : at + size])]
    parts += cutter.rest()
    assert "".join(parts) == text
    assert max(map(len, parts)) <= MOST
    assert " " not in text or all(part.endswith(" ") for part in parts)


def test_deltas_are_sentences_where_the_session_asks_for_them(serve: Serve, dial: Dial) -> None:
    peer = dial(serve(fake_triton(llm=scripted("One two. Three. Four"))), "model=llm")
    peer.send("session.update", session={"type": "realtime", "deltas": "sentences"})
    assert peer.until("session.updated")["session"]["deltas"] == "sentences"
    peer.send("conversation.item.create", item=item("hi"))
    for fields, expected in (({}, ["One two. ", "Three. ", "Four"]), ({"deltas": "tokens"}, None)):
        peer.events.clear()
        peer.send("response.create", response=fields)
        done = peer.until("response.done")["response"]
        deltas = [one["delta"] for one in peer.events if one["type"] == "response.output_text.delta"]
        assert "".join(deltas) == done["output"][0]["content"][0]["text"] == "One two. Three. Four"
        assert deltas == expected if expected else len(deltas) > 3


def test_of_an_answer_that_is_cancelled_no_half_sentence_is_told(serve: Serve, dial: Dial) -> None:
    peer = dial(serve(fake_triton(llm=scripted("One two. " + "three " * 500, step=0.01))), "model=llm")
    peer.send("session.update", session={"type": "realtime", "deltas": "sentences"})
    peer.ask(item("hi"))
    assert peer.until("response.output_text.delta")["delta"] == "One two. "
    peer.send("response.cancel")
    done = peer.until("response.done")["response"]
    assert done["output"][0]["content"][0]["text"] == "One two. "
