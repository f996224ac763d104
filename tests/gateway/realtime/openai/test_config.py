"""What clients send in session.update though they need not, and the names that they have for models."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from openai.types.realtime import AudioTranscription

from tests.gateway.conftest import ANSWER, Serve
from tests.gateway.realtime.conftest import Dial, Event, transcription
from tests.gateway.realtime.openai.test_conversation import item

# @openai/agents-realtime 0.20: its session.update with `outputModalities: ["text"]`.
AGENTS: Event = {
    "type": "realtime",
    "instructions": "be brief",
    "model": "llm",
    "output_modalities": ["text"],
    "audio": {
        "input": {
            "format": {"type": "audio/pcm", "rate": 24000},
            "noise_reduction": None,
            "transcription": {"model": "gpt-4o-mini-transcribe"},
            "turn_detection": {"type": "semantic_vad"},
        },
        "output": {"format": {"type": "audio/pcm", "rate": 24000}, "speed": 1},
    },
}


def openais_names() -> list[str]:
    """Of models that transcribe."""
    union: Any = AudioTranscription.model_fields["model"].annotation
    return [name for part in get_args(union) for name in get_args(part)]


def test_how_audio_is_to_sound_asks_for_nothing_where_the_answer_is_text(serve: Serve, dial: Dial) -> None:
    peer = dial(serve(), "model=llm")
    peer.send("session.update", session=AGENTS)
    session = peer.until("session.updated")["session"]
    assert (session["output_modalities"], session["instructions"]) == (["text"], "be brief")
    assert set(session["audio"]) == {"input"}
    peer.ask(item("hi"))
    assert peer.until("response.done")["response"]["output"][0]["content"][0]["text"] == ANSWER


def test_names_of_an_operator_hold_in_sessions(serve: Serve, dial: Dial) -> None:
    running = serve(model_aliases=["gpt-realtime-2.1=llm", "ears=speech"])
    peer = dial(running, "model=gpt-realtime-2.1")
    heard = {"input": {"transcription": {"model": "ears"}}}
    peer.send("session.update", session={**AGENTS, "model": "gpt-realtime-2.1", "audio": heard})
    session = peer.until("session.updated")["session"]
    assert (session["model"], session["audio"]["input"]["transcription"]["model"]) == ("llm", "speech")
    peer.send("session.update", session={"type": "realtime", "model": "gpt-realtime"})
    peer.receive()
    assert peer.events[-1]["error"]["code"] == "model_not_found", "no name of theirs"


@pytest.mark.parametrize("name", openais_names())
def test_openais_models_that_transcribe(serve: Serve, dial: Dial, name: str) -> None:
    """Which one tells who speaks has no model here."""
    peer = dial(serve(), "intent=transcription")
    peer.receive()
    peer.send("session.update", session=transcription(transcription={"model": name}))
    event = peer.receive()
    if name == "gpt-4o-transcribe-diarize":
        assert event["error"]["code"] == "model_not_found"
    else:
        assert event["session"]["audio"]["input"]["transcription"]["model"] == "speech"
