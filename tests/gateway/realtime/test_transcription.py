"""Transcription sessions of OpenAI's Realtime API."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest

from tests.doubles.waiting import wait_until
from tests.gateway.conftest import LIMIT_S, Serve, fake_triton
from tests.gateway.realtime.conftest import WORDS, Dial, pcm, transcription
from trimodal.client.transports.base import Request
from trimodal.client.transports.fake import FakeSpeech
from trimodal.errors import InvalidArgument, Unavailable
from trimodal.gateway.realtime.openai import buffer

PREFIX = "conversation.item.input_audio_transcription"
SETTINGS = transcription(
    format={"type": "audio/pcm", "rate": 24_000}, transcription={"model": "gpt-4o-transcribe"}
)


def test_openais_own_client_async(serve: Serve) -> None:
    running = serve()

    async def talk() -> list[object]:
        events = []
        async with (
            running.openai_async() as client,
            client.realtime.connect(extra_query={"intent": "transcription"}) as connection,
        ):
            await connection.session.update(session=SETTINGS)  # type: ignore[arg-type]
            for _ in range(32):
                await connection.input_audio_buffer.append(audio=pcm(0.1))
            await connection.input_audio_buffer.commit()
            async for event in connection:
                events.append(event)
                if event.type == f"{PREFIX}.completed":
                    break
        return events

    events = asyncio.run(asyncio.wait_for(talk(), LIMIT_S))
    deltas = "".join(event.delta for event in events if event.type == f"{PREFIX}.delta")  # type: ignore[attr-defined]
    assert deltas == events[-1].transcript == WORDS  # type: ignore[attr-defined]
    assert events[-1].usage.seconds == pytest.approx(3.2, abs=0.01)  # type: ignore[attr-defined]


def test_a_manual_turn_in_order(serve: Serve, dial: Dial) -> None:
    running = serve()
    peer = dial(running, "intent=transcription")
    peer.send("session.update", session=SETTINGS, event_id="mine")
    peer.append(3.2)
    peer.until(f"{PREFIX}.delta")
    peer.send("input_audio_buffer.commit")
    peer.until(f"{PREFIX}.completed")
    assert peer.kinds() == [
        "session.created", "session.updated", f"{PREFIX}.delta", "input_audio_buffer.committed",
        "conversation.item.added", "conversation.item.done", f"{PREFIX}.delta", f"{PREFIX}.completed",
    ]  # fmt: skip
    assert len({event["item_id"] for event in peer.events if "item_id" in event}) == 1
    assert [event["event_id"] for event in peer.events] == [
        f"event_{number}" for number in range(1, len(peer.events) + 1)
    ]
    words = [word for event in peer.events for word in event.get("words", ())]
    assert words[-1] == {"word": "Well.", "start": 2.4, "end": 2.9}
    assert not running.triton.functions["speech"].streams  # type: ignore[union-attr]


@pytest.mark.usefixtures("_loud_is_speech")
def test_detected_turns(serve: Serve, dial: Dial) -> None:
    peer = dial(serve(), "intent=transcription")
    for _ in range(2):
        peer.append(1.0, level=0.0)
        peer.say(3.2)
    for _ in range(2):
        completed = peer.until(f"{PREFIX}.completed")
        assert completed["transcript"] == WORDS
    started = [event for event in peer.events if event["type"] == "input_audio_buffer.speech_started"]
    stopped = [event for event in peer.events if event["type"] == "input_audio_buffer.speech_stopped"]
    assert [event["audio_start_ms"] for event in started] == pytest.approx([1000, 6200], abs=70)
    assert [event["audio_end_ms"] for event in stopped] == pytest.approx([4200, 9400], abs=70)
    assert [event["item_id"] for event in started] == [event["item_id"] for event in stopped]
    words = [word for event in peer.events for word in event.get("words", ())]
    # The fake model's words are a clock from where the turn's audio began: 300 ms before its speech.
    assert [word["start"] for word in words[::4]] == pytest.approx([0.8, 6.0], abs=0.07)
    committed = [event for event in peer.events if event["type"] == "input_audio_buffer.committed"]
    assert committed[1]["previous_item_id"] == committed[0]["item_id"]


@pytest.mark.usefixtures("_loud_is_speech")
def test_silence_is_not_sent_and_commits_nothing(serve: Serve, dial: Dial) -> None:
    running = serve()
    peer = dial(running, "intent=transcription")
    peer.append(5.0, level=0.0)
    peer.receive()
    peer.send("input_audio_buffer.commit", event_id="empty")
    error = peer.receive()["error"]
    assert (error["code"], error["event_id"]) == ("input_audio_buffer_commit_empty", "empty")
    assert running.triton.requests == []


@pytest.mark.usefixtures("_loud_is_speech")
def test_a_turn_that_the_client_commits_ends_there(serve: Serve, dial: Dial) -> None:
    peer = dial(serve(), "intent=transcription")
    peer.append(1.5)
    peer.until("input_audio_buffer.speech_started")
    peer.send("input_audio_buffer.commit")
    assert peer.until(f"{PREFIX}.completed")["transcript"] == "what is this?"
    peer.append(1.5)
    peer.until("input_audio_buffer.speech_started")


def test_clear_forgets_the_turn(serve: Serve, dial: Dial) -> None:
    running = serve()
    peer = dial(running, "intent=transcription")
    peer.send("session.update", session=SETTINGS)
    peer.append(2.0)
    peer.until(f"{PREFIX}.delta")
    peer.send("input_audio_buffer.clear")
    peer.until("input_audio_buffer.cleared")
    assert not running.triton.functions["speech"].streams  # type: ignore[union-attr]
    peer.send("input_audio_buffer.commit")
    assert peer.receive()["error"]["code"] == "input_audio_buffer_commit_empty"
    peer.append(3.2)
    peer.send("input_audio_buffer.commit")
    assert peer.until(f"{PREFIX}.completed")["transcript"] == WORDS


@pytest.mark.parametrize("kind", ["audio/pcmu", "audio/pcma"])
def test_telephone_audio(serve: Serve, dial: Dial, kind: str) -> None:
    peer = dial(serve(), "intent=transcription")
    peer.send("session.update", session=transcription(format={"type": kind}))
    codes = np.random.default_rng(0).integers(0, 256, 8_000 * 32 // 10, np.uint8)
    peer.send("input_audio_buffer.append", audio=base64.b64encode(codes.tobytes()).decode())
    peer.send("input_audio_buffer.commit")
    completed = peer.until(f"{PREFIX}.completed")
    assert completed["transcript"] == WORDS
    assert completed["usage"] == {"type": "duration", "seconds": pytest.approx(3.2, abs=0.01)}
    session = next(event for event in peer.events if event["type"] == "session.updated")["session"]
    assert session["audio"]["input"]["format"] == {"type": kind}


def test_language_prompt_keywords_and_delay_reach_the_model(serve: Serve, dial: Dial) -> None:
    running = serve()
    peer = dial(running, "intent=transcription")
    asked: dict[str, object] = {
        "model": "speech",
        "language": "en",
        "prompt": "lambda",
        "keywords": ["Ada", "Grace"],
    }
    asked["delay"] = "minimal"
    peer.send("session.update", session=transcription(transcription=asked))
    peer.append(0.5)
    wait_until(lambda: running.triton.requests, "audio arrives")
    parameters = running.triton.requests[0].parameters
    told = tuple(parameters[name] for name in ("language", "prompt", "delay"))
    assert told == ("en", "Ada, Grace\nlambda", "minimal")


def test_the_format_stays_once_audio_came(serve: Serve, dial: Dial) -> None:
    peer = dial(serve(), "intent=transcription")
    peer.append(level=0.0)
    peer.receive()
    peer.send("session.update", session=transcription(format={"type": "audio/pcmu"}))
    assert peer.receive()["error"]["param"] == "session.audio.input.format"


def test_a_stream_that_the_server_refuses_fails_its_item_only(serve: Serve, dial: Dial) -> None:
    triton = fake_triton()
    speech = triton.functions["speech"]

    def busy(request):  # type: ignore[no-untyped-def]
        raise Unavailable("too many streams")

    triton.functions["speech"] = busy
    peer = dial(serve(triton), "intent=transcription")
    peer.send("session.update", session=SETTINGS)
    peer.append(0.5)
    failed = peer.until(f"{PREFIX}.failed")
    assert failed["error"]["code"] == "overloaded"
    assert peer.receive()["error"]["message"] == "too many streams"
    peer.send("input_audio_buffer.commit")
    peer.until("conversation.item.done")
    triton.functions["speech"] = speech
    peer.append(3.2)
    peer.send("input_audio_buffer.commit")
    assert peer.until(f"{PREFIX}.completed")["transcript"] == WORDS


@pytest.mark.usefixtures("_loud_is_speech")
@pytest.mark.parametrize("before", [{"type": "server_vad", "silence_duration_ms": 2_000}, None])
def test_a_turn_ends_by_the_detection_that_is_chosen_within_it(
    serve: Serve, dial: Dial, before: dict[str, object] | None
) -> None:
    peer = dial(serve(), "intent=transcription")
    peer.send("session.update", session=transcription(turn_detection=before))
    peer.append(3.2)
    vad = {"type": "server_vad", "silence_duration_ms": 300}
    peer.send("session.update", session=transcription(turn_detection=vad))
    peer.append(0.6, level=0.0)
    assert peer.until(f"{PREFIX}.completed")["transcript"] == WORDS


@pytest.mark.usefixtures("_loud_is_speech")
def test_a_microphone_that_is_muted_within_a_turn_ends_it(
    serve: Serve, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer, "LATE_S", 0.05)
    peer = dial(serve(), "intent=transcription")
    vad = {"type": "server_vad", "silence_duration_ms": 100}
    peer.send("session.update", session=transcription(turn_detection=vad))
    for _ in range(10):
        peer.append(0.1)
    assert peer.until(f"{PREFIX}.completed")["transcript"] == "what is this?"
    assert "input_audio_buffer.speech_stopped" in peer.kinds()
    for _ in range(10):  # another turn
        peer.append(0.1)
    peer.until(f"{PREFIX}.completed")


def test_words_of_an_open_turn_come_without_more_audio(serve: Serve, dial: Dial) -> None:
    peer = dial(serve(), "intent=transcription")
    peer.send("session.update", session=transcription())
    for _ in range(30):
        peer.append(0.1)
    while peer.deltas() != WORDS:
        peer.receive()


def test_a_session_whose_first_turn_was_heard_says_so_with_later_ones(serve: Serve, dial: Dial) -> None:
    heard, refuses = FakeSpeech(("what", 0.1, 0.3)), iter([True, False, False])

    def busy(request: Request) -> object:
        if request.parameters["sequence_start"] and next(refuses):
            raise Unavailable("speech: open streams are heard 9.0 s late")
        return heard(request)

    running = serve(fake_triton(speech=busy))
    peer = dial(running, "intent=transcription")
    peer.send("session.update", session=SETTINGS)
    for kind in ("failed", "completed", "completed"):
        peer.append(1.0)
        peer.send("input_audio_buffer.commit")
        while peer.receive()["type"] != f"{PREFIX}.{kind}":
            pass
    starts = [one.parameters for one in running.triton.requests if one.parameters.get("sequence_start")]
    assert [one["admitted"] for one in starts] == [False, False, True]


@pytest.mark.usefixtures("_loud_is_speech")
def test_the_copyable_client_says_in_a_sentence_what_the_server_refuses(serve: Serve, tmp_path: Path) -> None:
    def english(request: Request) -> object:
        raise InvalidArgument("language: 'de' is not known (known: en)")

    with wave.open(str(tmp_path / "talk.wav"), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", None))
        file.writeframes(base64.b64decode(pcm(1.0, 16_000)))
    url = serve(fake_triton(speech=english)).url.replace("http", "ws") + "/v1/realtime"
    program = Path(__file__).parents[3] / "clients/realtime_microphone.py"
    command = [sys.executable, program, tmp_path / "talk.wav", "--url", url, "--language", "de"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["language: 'de' is not known (known: en)"]
