"""Chats with pictures and recordings: they go to the assistant, with the talk until then."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import threading
import tracemalloc
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
import soundfile

from tests.gateway.conftest import Serve, fake_triton
from tests.gateway.openai.test_audio import wav
from trimodal.client.client import Client
from trimodal.client.transports.fake import FakeSpeech, FakeTransport
from trimodal.gateway.errors import ApiError
from trimodal.gateway.keys import Key, add_key
from trimodal.gateway.openai import conversation
from trimodal.gateway.openai.conversation import DecodedMessage, FindingsCache, _decoded, read_samples
from trimodal.gateway.quota import KEY_HELD_S, HeldAudio, KeyUsage

PICTURE = "data:image/png;base64," + base64.b64encode(b"a picture").decode()
IMAGE = {"type": "image_url", "image_url": {"url": PICTURE}}
AUDIO = {
    "type": "input_audio",
    "input_audio": {"data": base64.b64encode(wav(1).getvalue()).decode(), "format": "wav"},
}


def user(*parts: object) -> dict[str, object]:
    content = [{"type": "text", "text": one} if isinstance(one, str) else one for one in parts]
    return {"role": "user", "content": content}


@pytest.mark.parametrize("stream", [False, True])
def test_a_question_about_a_picture_and_a_recording(serve: Serve, stream: bool) -> None:
    served = serve()
    messages = [user("which digit?", IMAGE, AUDIO)]
    body = {"model": "llm", "messages": messages, "max_tokens": 9, "stream": stream}
    answer = httpx.post(f"{served.url}/v1/chat/completions", json=body)
    if stream:
        chunks = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        text = "".join(one["choices"][0]["delta"].get("content", "") for one in chunks)
        told = chunks[-1]["trimodal"]
    else:
        text, told = answer.json()["choices"][0]["message"]["content"], answer.json()["trimodal"]
    assert text == "A seven."
    assert told["heard"] == "what is this"
    assert told["labels"] == [{"label": "seven", "score": 0.9}, {"label": "one", "score": 0.1}]
    assert told["stages_ms"] == {"total": 5.0}
    (request,) = served.triton.requests
    assert request.model == "assistant"
    assert request.inputs["text_input"].tolist() == [b"which digit?"]
    assert request.inputs["image"].tolist() == [b"a picture"]
    assert (request.inputs["audio"].dtype, request.inputs["audio"].size) == (np.float32, 16_000)
    assert request.inputs["max_tokens"].tolist() == [9]
    assert "history" not in request.inputs


def test_the_talk_comes_again_and_what_was_seen_in_it_is_not_seen_again(serve: Serve) -> None:
    served = serve()
    client = served.openai()
    first = user("which digit?", IMAGE, AUDIO)
    client.chat.completions.create(model="llm", messages=[first])
    talk = [
        {"role": "system", "content": "Be brief."}, first, {"role": "assistant", "content": "A seven."},
        {"role": "user", "content": "are you sure?"},
    ]  # fmt: skip
    client.chat.completions.create(model="llm", messages=talk)
    assert [request.model for request in served.triton.requests] == ["assistant"] * 2
    asked = served.triton.requests[-1].inputs
    assert asked["text_input"].tolist() == [b"are you sure?"]
    assert "image" not in asked
    history = json.loads(asked["history"][0])
    labels = [{"label": "seven", "score": pytest.approx(0.9)}, {"label": "one", "score": pytest.approx(0.1)}]
    assert history == [
        {"role": "system", "content": "Be brief.", "labels": []},
        {"role": "user", "content": "which digit?", "heard": "what is this", "labels": labels},
        {"role": "assistant", "content": "A seven.", "labels": []},
    ]


def test_what_was_seen_for_one_tenant_is_looked_at_again_for_another(serve: Serve, file: Path) -> None:
    keys = [add_key(file, Key(name=name)) for name in ("one", "other")]
    served = serve(keys=file)
    talk = [user("which digit?", IMAGE), {"role": "assistant", "content": "7"}, user("sure?")]
    for key in (keys[0], keys[0], keys[1]):
        served.openai(key).chat.completions.create(model="llm", messages=talk)  # type: ignore[arg-type]
    asked = [request.model for request in served.triton.requests]
    assert asked == ["vision", "assistant", "assistant", "vision", "assistant"]


def test_a_gateway_that_never_saw_it_looks_itself(serve: Serve) -> None:
    served = serve(fake_triton())
    talk = [user("which digit?", IMAGE, AUDIO), {"role": "assistant", "content": "x"}, user("sure?")]
    served.openai().chat.completions.create(model="llm", messages=talk)
    models = [request.model for request in served.triton.requests]
    assert (models[-1], set(models)) == ("assistant", {"speech", "vision", "assistant"})
    (first, *_) = json.loads(served.triton.requests[-1].inputs["history"][0])
    assert first["labels"][0]["label"] == "seven"
    assert first["heard"] == "what is this?"


def test_a_picture_alone_is_no_question(serve: Serve) -> None:
    """The assistant, which takes none, would name fields that its caller never sent."""
    served = serve()
    messages = [user("which digit?", IMAGE), {"role": "assistant", "content": "A seven."}, user(IMAGE)]
    answer = httpx.post(f"{served.url}/v1/chat/completions", json={"model": "llm", "messages": messages})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["message"] == "messages[2]: words or a recording are needed"
    assert error["param"] == "messages[2]"
    assert not served.triton.requests


def test_words_alone_go_to_the_model_that_is_named(serve: Serve) -> None:
    served = serve()
    for model in ("llm", "assistant"):
        served.openai().chat.completions.create(model=model, messages=[user("one", "two")])
    assert [request.model for request in served.triton.requests] == ["llm", "assistant"]


def test_a_key_without_the_assistant_sends_no_pictures(serve: Serve, file: Path) -> None:  # type: ignore[no-untyped-def]
    secret = add_key(file, Key(name="a", models=("llm",)))
    with pytest.raises(openai.PermissionDeniedError, match="'assistant'"):
        serve(keys=file).openai(secret).chat.completions.create(model="llm", messages=[user("a", IMAGE)])


def _silence(seconds: int) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.zeros(seconds * 16_000, np.int16), 16_000, format="FLAC")
    return file.getvalue()


def test_a_long_recording_is_in_memory_once() -> None:
    contents = _silence(600)
    tracemalloc.start()
    samples = _decoded(contents, "audio", threading.Event())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(samples) == 600 * 16_000
    assert peak < 1.7 * samples.nbytes


def test_a_recording_above_ten_minutes_is_refused() -> None:
    with pytest.raises(ApiError, match="audio is longer than 600 s"):
        _decoded(_silence(601), "audio", threading.Event())


async def test_a_recording_holds_room_for_as_long_as_it_is_and_until_its_request_ends() -> None:
    room = HeldAudio()
    samples = [KeyUsage({}, key="a", room=room) for _ in range(round(KEY_HELD_S // 600) - 1)]
    for usage in samples:
        assert len(await read_samples(_silence(600), "audio", usage)) == 600 * 16_000
    short, late = KeyUsage({}, key="a", room=room), KeyUsage({}, key="a", room=room)
    await read_samples(_silence(3), "audio", short)
    assert short.held == 3 * 16_000
    waiting = asyncio.ensure_future(read_samples(_silence(3), "audio", late))
    await asyncio.sleep(0)
    assert late.held == 0, "it might be a long one"
    short.free(short.held)
    await waiting


def test_a_recording_whose_client_left_is_not_decoded_to_its_end() -> None:
    left = threading.Event()
    left.set()
    assert len(_decoded(_silence(600), "audio", left)) == 0


def test_what_was_heard_in_long_recordings_is_bounded_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours of speech in each of 4,096 files would be gigabytes; who is left out is heard again."""
    monkeypatch.setattr(conversation, "REMEMBERED_CHARACTERS", 25)
    transport = FakeTransport(speech=FakeSpeech(("again", 0.1, 0.3)))
    cache, client = FindingsCache(), Client(transport=transport)

    def file(number: int) -> DecodedMessage:
        return DecodedMessage("user", "", audio=wav(1).getvalue() + bytes([number]))

    async def heard(number: int) -> str:
        return (await cache.found("anna", file(number), client, KeyUsage({}))).heard

    for number in range(4):
        cache.keep("anna", file(number), f"recording {number}", ())
    cache.keep("anna", file(3), "recording 3 anew", ())
    assert asyncio.run(heard(3)) == "recording 3 anew"
    assert not transport.requests
    assert asyncio.run(heard(2)) == "again"
