"""Words that may still change: for clients that ask for them, in both dialects."""

from __future__ import annotations

import pytest

from tests.gateway.conftest import Serve, fake_triton
from tests.gateway.realtime.conftest import WORDS, Corrects, Dial, Event, Peer, transcription
from trimodal.client.transports.fake import FakeSpeech
from trimodal.gateway.realtime.openai.config import TENTATIVE

PREFIX = "conversation.item.input_audio_transcription"
ASKED = {**transcription(), "include": [TENTATIVE]}
UNTIL = {"openai": f"{PREFIX}.completed", "vllm": "transcription.done"}


def opened(peer: Peer, dialect: str, **fields: object) -> None:
    """In the dialect, at 16 kHz, words that may change asked for."""
    peer.openai = False
    peer.receive()
    if dialect == "vllm":
        peer.send("session.update", model="speech", tentative=True)
        peer.send("input_audio_buffer.commit")
    else:
        form = {"type": "audio/pcm", "rate": 16_000}
        peer.send("session.update", session={**transcription(format=form), "include": [TENTATIVE]})
        peer.until("session.updated")


def shown(events: list[Event]) -> list[tuple[str, str]]:
    """Final text and what may still change, as a reader has them after each event of words."""
    final, seen = "", []
    for event in events:
        if event["type"].endswith(".delta"):
            final += event["delta"]
        elif event["type"].endswith(".corrected"):
            assert final.endswith(event["before"])
            final = final.removesuffix(event["before"]) + event["text"]
        elif event["type"].endswith(".tentative"):
            seen.append((final, event["text"]))
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


@pytest.mark.parametrize("dialect", UNTIL)
def test_what_is_corrected_is_told_and_in_the_whole(serve: Serve, dial: Dial, dialect: str) -> None:
    speech = Corrects(("what", 0.1, 0.3), ("is", 0.4, 0.6), ("this?", 0.7, 0.9), ("now", 2.0, 2.2))
    peer = dial(serve(fake_triton(speech=speech)), "intent=transcription")
    opened(peer, dialect)
    for _ in range(25):
        peer.append(0.1, 16_000)
    peer.send("input_audio_buffer.commit", **({"final": True} if dialect == "vllm" else {}))
    last = peer.until(UNTIL[dialect])
    corrected = [event for event in peer.events if event["type"].endswith(".corrected")]
    assert [(event["before"], event["text"]) for event in corrected] == [("is this?", "was that?")]
    assert (last.get("transcript") or last["text"]) == "what was that? now" == shown(peer.events)[-1][0]


def test_who_asks_for_nothing_has_corrections_in_the_whole(serve: Serve, dial: Dial) -> None:
    speech = Corrects(("what", 0.1, 0.3), ("is", 0.4, 0.6), ("this?", 0.7, 0.9))
    peer = dial(serve(fake_triton(speech=speech)), "intent=transcription")
    peer.send("session.update", session=transcription())
    peer.append(1.5)
    peer.send("input_audio_buffer.commit")
    assert peer.until(f"{PREFIX}.completed")["transcript"] == "what was that?"
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
