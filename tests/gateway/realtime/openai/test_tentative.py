"""Words that may still change: for clients that ask for them, in both dialects."""

from __future__ import annotations

import math

import pytest

from tests.gateway.conftest import Serve, fake_triton
from tests.gateway.realtime.conftest import ONE, WORDS, Corrects, Dial, Event, Peer, transcription
from trimodal.audio.values import Correction, Word
from trimodal.client.transports.fake import FakeSpeech
from trimodal.gateway.realtime.openai.config import TENTATIVE

PREFIX = "conversation.item.input_audio_transcription"
ASKED = {**transcription(), "include": [TENTATIVE]}
SAID = (("what", 0.1, 0.3), ("is", 0.4, 0.6), ("this?", 0.7, 0.9), ("now", 2.0, 2.2))
UNTIL = {"openai": f"{PREFIX}.completed", "vllm": "transcription.done"}


def opened(peer: Peer, dialect: str, *, asked: bool = True) -> None:
    """In the dialect, at 16 kHz, words that may change asked for unless `asked` is false."""
    peer.openai = False
    peer.receive()
    if dialect == "vllm":
        peer.send("session.update", model="speech", tentative=asked)
        peer.send("input_audio_buffer.commit")
    else:
        form = {"type": "audio/pcm", "rate": 16_000}
        peer.send(
            "session.update", session={**transcription(format=form), "include": [TENTATIVE] if asked else []}
        )
        peer.until("session.updated")


def shown(events: list[Event]) -> list[tuple[str, str]]:
    """Final text and what may still change, as a reader has them after each event of words."""
    final, guess, seen = "", "", []
    for event in events:
        kind = event["type"].rpartition(".")[2]
        if kind == "delta":
            final += event["delta"]
        elif kind == "corrected":
            assert final.endswith(event["before"])
            final = final.removesuffix(event["before"]) + event["text"]
        if kind == "tentative":
            guess = event["text"]
        if kind in ("tentative", "corrected"):
            seen.append((final, guess))
    return seen


@pytest.mark.parametrize("dialect", UNTIL)
def test_words_are_told_before_they_are_final(serve: Serve, dial: Dial, dialect: str) -> None:
    peer = dial(serve(), "intent=transcription" if dialect == "openai" else "")
    opened(peer, dialect)
    kind = PREFIX if dialect == "openai" else "transcription"
    peer.append(0.65, 16_000)
    assert peer.until(f"{kind}.tentative")["text"] == "what is"
    peer.append(0.05, 16_000)
    peer.append(0.15, 16_000)
    assert peer.until(f"{kind}.delta")["delta"] == "what"
    assert peer.receive()["text"] == " is", "told again after each delta; nothing was told that is not new"
    peer.append(2.35, 16_000)
    assert peer.until(f"{kind}.tentative")["text"] == " Well."
    peer.send("input_audio_buffer.commit", **({"final": True} if dialect == "vllm" else {}))
    peer.until(UNTIL[dialect])
    assert shown(peer.events) == [
        ("", "what is"), ("what", " is"), ("what is this?", " Well."), (WORDS, ""),
    ]  # fmt: skip


@pytest.mark.parametrize("dialect", UNTIL)
def test_they_join_the_text_and_only_news_is_told(serve: Serve, dial: Dial, dialect: str) -> None:
    words = [("no", number * 0.1, number * 0.1 + 0.08) for number in range(40)]
    peer = dial(serve(fake_triton(speech=FakeSpeech(*words))), "intent=transcription")
    opened(peer, dialect)
    for _ in range(40):
        peer.append(0.1, 16_000)
    peer.send("input_audio_buffer.commit", **({"final": True} if dialect == "vllm" else {}))
    last = peer.until(UNTIL[dialect])
    everything = last.get("transcript") or last["text"]
    seen = shown(peer.events)
    assert all(everything.startswith(final + guess) for final, guess in seen)
    assert seen[-1] == (everything, "")
    assert all(now != before for now, before in zip(seen, seen[1:], strict=False))
    kinds = [event["type"].rpartition(".")[2] for event in peer.events]
    follows = [after for kind, after in zip(kinds, kinds[1:], strict=False) if kind == "delta"]
    assert set(follows) == {"tentative"}


ALONE_S = 1.8  # seconds of audio, when no word comes
AGAIN = Correction(0, 3, (Word(" What", 0.1, 0.3, 0.9), Word(" was this?", 0.4, 0.9, 0.9)))
NOTHING = Correction(0, 3, ())
CORRECTED = [
    pytest.param([(0.0, ONE)], ["is this? → was that?"], "what was that? now", id="with words"),
    pytest.param([(ALONE_S, ONE)], ["is this? → was that?"], "what was that? now", id="alone"),
    pytest.param(
        [(0.0, ONE), (ALONE_S, AGAIN)],
        ["is this? → was that?", "what was that? → What was this?"],
        "What was this? now",
        id="twice",
    ),
    pytest.param([(math.inf, ONE)], ["is this? now → was that? now"], "what was that? now", id="at the end"),
    pytest.param([(ALONE_S, NOTHING)], ["what is this? → "], "now", id="nothing was said"),
    pytest.param(
        [(ALONE_S, ONE), (ALONE_S, ONE)], ["is this? → was that?"], "what was that? now", id="the same"
    ),
]


def heard(peer: Peer, dialect: str, corrections: int = 0) -> str:
    """Says SAID, each piece once the words before it and so many corrections are here; the whole text."""
    peer.append(1.5, 16_000)
    while "this?" not in peer.deltas():
        peer.receive()
    peer.append(ALONE_S + 0.1 - 1.5, 16_000)  # no word is committed in it
    while sum(event["type"].endswith(".corrected") for event in peer.events) < corrections:
        peer.receive()
    peer.append(1.0, 16_000)
    peer.send("input_audio_buffer.commit", **({"final": True} if dialect == "vllm" else {}))
    last = peer.until(UNTIL[dialect])
    return str(last.get("transcript") or last["text"])


@pytest.mark.parametrize(("told", "shown_as", "whole"), CORRECTED)
@pytest.mark.parametrize("dialect", UNTIL)
def test_what_is_corrected_is_told_and_in_the_whole(
    serve: Serve,
    dial: Dial,
    dialect: str,
    told: list[tuple[float, Correction]],
    shown_as: list[str],
    whole: str,
) -> None:
    peer = dial(serve(fake_triton(speech=Corrects(*SAID, told=told))), "intent=transcription")
    opened(peer, dialect)
    assert heard(peer, dialect, len({one for from_s, one in told if from_s <= ALONE_S})) == whole
    corrected = [event for event in peer.events if event["type"].endswith(".corrected")]
    assert [f"{event['before']} → {event['text']}" for event in corrected] == shown_as
    assert shown(peer.events)[-1] == (whole, "")


@pytest.mark.parametrize("from_s", [0.0, ALONE_S, math.inf])
@pytest.mark.parametrize("dialect", UNTIL)
def test_who_asks_for_nothing_has_corrections_in_the_whole(
    serve: Serve, dial: Dial, dialect: str, from_s: float
) -> None:
    peer = dial(serve(fake_triton(speech=Corrects(*SAID, told=[(from_s, ONE)]))), "intent=transcription")
    opened(peer, dialect, asked=False)
    assert heard(peer, dialect) == "what was that? now"
    assert not any(event["type"].endswith(".corrected") for event in peer.events)


def test_who_does_not_ask_is_told_nothing_new(serve: Serve, dial: Dial) -> None:
    peer = dial(serve(), "intent=transcription")
    assert "include" not in peer.receive()["session"]
    for include in (None, [], [TENTATIVE], None):  # as for no asking: null takes it back
        peer.openai = not include
        peer.send("session.update", session={**transcription(), "include": include})
        assert peer.until("session.updated")["session"].get("include") == (include or None)
    peer.append(3.2)
    peer.send("input_audio_buffer.commit")
    peer.until(f"{PREFIX}.completed")
    assert not shown(peer.events)


def test_vllms_dialect_without_it(serve: Serve, dial: Dial) -> None:
    peer = dial(serve())
    opened(peer, "vllm")
    peer.send("session.update", model="speech", tentative=1)
    assert "tentative: true or false" in peer.receive()["error"]
    peer.send("session.update", model="speech", tentative=False)
    peer.append(3.2, 16_000)
    peer.send("input_audio_buffer.commit", final=True)
    peer.until("transcription.done")
    assert not shown(peer.events)


def test_a_turn_without_transcription_has_none(serve: Serve, dial: Dial) -> None:
    peer = dial(serve(), "model=llm")
    peer.openai = False
    settings = transcription(transcription=None) | {"type": "realtime", "include": [TENTATIVE]}
    peer.send("session.update", session=settings)
    peer.append(3.2)
    peer.send("input_audio_buffer.commit")
    peer.send("response.create")
    peer.until("response.done")
    assert not shown(peer.events)
