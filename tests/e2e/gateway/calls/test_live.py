"""/v1/realtime with the package's own connections."""

from __future__ import annotations

import base64
import time
import wave
from typing import Any

import pytest

from tests.e2e.gateway.calls.starter import GREECE, JAPAN, Starter, same
from tests.e2e.gateway.calls.test_media import HIMSELF, SELFISH, SPEECH, spoken

pytestmark = [pytest.mark.e2e, pytest.mark.build, pytest.mark.slow]

COMPLETED = "conversation.item.input_audio_transcription.completed"
TRANSCRIPTION = {"intent": "transcription"}
PCM = {"type": "audio/pcm", "rate": 16_000}


def pieces(name: str, silence_s: float = 0.0, *, pause: tuple[float, float] = (0.0, 0.0)) -> list[str]:
    """100 ms each, 16-bit, in base64; with a pause from a moment on, for so many seconds."""
    with wave.open(str(SPEECH / name)) as file:
        data = file.readframes(file.getnframes())
    at = 2 * int(16_000 * pause[0])
    data = data[:at] + bytes(2 * int(16_000 * pause[1])) + data[at:]
    data += bytes(2 * int(16_000 * silence_s))
    return [base64.b64encode(data[at : at + 3_200]).decode() for at in range(0, len(data), 3_200)]


def session(kind: str, turn_detection: object = None, **more: object) -> dict[str, Any]:
    return {"type": kind, "audio": {"input": {"format": PCM, "turn_detection": turn_detection}}, **more}


def checked(event: Any) -> Any:
    assert event.type != "error", event
    return event


def item(text: str) -> Any:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def test_a_transcription_session(starter: Starter) -> None:
    with starter.client.realtime.connect(extra_query=TRANSCRIPTION) as connection:
        connection.session.update(session=session("transcription"))
        for piece in pieces(HIMSELF):
            connection.input_audio_buffer.append(audio=piece)
        connection.input_audio_buffer.commit()
        while checked(event := connection.recv()).type != COMPLETED:
            pass
    assert same(event.transcript, spoken(HIMSELF)["text"])


def test_turns_that_the_server_detects(starter: Starter) -> None:
    """Two turns; a short one may be done before the one that came first: OpenAI orders them by item, too."""
    items: list[str] = []
    heard: dict[str, str] = {}
    with starter.client.realtime.connect(extra_query=TRANSCRIPTION) as connection:
        connection.session.update(session=session("transcription", {"type": "server_vad"}))
        for name in (HIMSELF, SELFISH):
            for piece in pieces(name, silence_s=1.5):
                connection.input_audio_buffer.append(audio=piece)
        while len(heard) < 2:
            event = checked(connection.recv())
            if event.type == "input_audio_buffer.committed":
                items.append(event.item_id)
            if event.type == COMPLETED:
                heard[event.item_id] = event.transcript.strip()
    for item, name in zip(items, (HIMSELF, SELFISH), strict=True):
        assert same(heard[item], spoken(name)["text"])


async def test_a_conversation_in_text(starter: Starter) -> None:
    async with starter.asynchronous() as client, client.realtime.connect(model="llm") as connection:
        answers = []
        for question in (JAPAN[0]["content"], GREECE):
            await connection.conversation.item.create(item=item(question))
            await connection.response.create()
            text = ""
            async for event in connection:
                text += event.delta if checked(event).type == "response.output_text.delta" else ""
                if event.type == "response.done":
                    break
            assert event.response.status == "completed"
            answers.append(text)
    assert "Tokyo" in answers[0]
    assert "Athens" in answers[1]


def test_a_spoken_question_that_needs_no_commit(starter: Starter) -> None:
    with starter.client.realtime.connect(model="llm") as connection:
        connection.session.update(session=session("realtime", {"type": "server_vad"}, max_output_tokens=32))
        for piece in pieces(HIMSELF, silence_s=1.5):
            connection.input_audio_buffer.append(audio=piece)
        while checked(event := connection.recv()).type != "response.output_text.done":
            pass
    assert event.text.strip()


def test_a_pause_within_a_sentence_does_not_end_a_turn(starter: Starter) -> None:
    """After "how" it sounds over (0.94), and no answer may begin before "them".

    Where the turn's model has no time on a busy machine, a turn ends after 0.5 s: then once more.
    """
    detection = {"type": "semantic_vad"}

    def turns() -> int:
        committed = 0
        with starter.client.realtime.connect(model="llm") as connection:
            connection.session.update(session=session("realtime", detection, max_output_tokens=8))
            for piece in pieces("austen-1-leisure.wav", silence_s=2.0, pause=(4.0, 0.7)):
                connection.input_audio_buffer.append(audio=piece)
                time.sleep(0.1)  # the pace of speech: words are judged while a pause lasts
            while checked(event := connection.recv()).type != "response.output_text.done":
                committed += event.type == "input_audio_buffer.committed"
        return committed

    assert 1 in (turns() for _ in range(3))
