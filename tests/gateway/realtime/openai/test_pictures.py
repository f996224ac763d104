"""Conversations with pictures: the assistant answers them, as it does those of /v1/chat/completions."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from tests.doubles.waiting import wait_until
from tests.gateway.conftest import ANSWER, Running, Serve, assistant, fake_triton
from tests.gateway.realtime.conftest import WORDS, Dial, Event, Peer
from tests.gateway.realtime.openai.test_conversation import cancelled, item
from tests.gateway.realtime.test_access import bearer, status
from trimodal.client.transports.base import Request
from trimodal.client.transports.fake import scripted
from trimodal.client.transports.tensors import strings
from trimodal.errors import InvalidArgument
from trimodal.gateway.keys import Key, add_key
from trimodal.gateway.realtime.openai import conversation

FILE = b"a picture"
LABELS = [{"label": "seven", "score": 0.9}, {"label": "one", "score": 0.1}]
SEEN = [{"label": one["label"], "score": pytest.approx(one["score"])} for one in LABELS]


def url(contents: bytes = FILE) -> str:
    return f"data:image/png;base64,{base64.b64encode(contents).decode()}"


def part(contents: bytes = FILE) -> Event:
    return {"type": "input_image", "image_url": url(contents)}


def picture(*texts: str, contents: bytes = FILE, **fields: object) -> Event:
    """An item of one picture and the words beside it."""
    words = [{"type": "input_text", "text": text} for text in texts]
    return item("", content=[part(contents), *words], **fields)


def requests(running: Running) -> list[Request]:
    """What a talk asked of the models that answer and see."""
    return [one for one in running.triton.requests if one.model != "speech"]


def history(request: Request) -> Any:
    return json.loads(request.inputs["history"][0])


def answered(peer: Peer, *items: Event) -> Event:
    """Adds items and has them answered."""
    for one in items:
        peer.send("conversation.item.create", item=one)
    peer.send("response.create")
    response: Event = peer.until("response.done")["response"]
    assert response["status"] == "completed", response
    return response


def refused(peer: Peer) -> Event:
    """What a response is refused for; reads the error event after it too."""
    peer.send("response.create")
    response = peer.until("response.done")["response"]
    assert response["status"] == "failed"
    error: Event = peer.receive()["error"]
    assert error["message"] == response["status_details"]["error"]["message"]
    return error


async def slow(request: Request):  # type: ignore[no-untyped-def]
    """An assistant that sees at once and goes on speaking."""
    async for outputs in assistant(request):
        if outputs["stage"][0] != b"answer":
            yield outputs
    async for outputs in scripted("word " * 400, step=0.02)(request):
        yield {"stage": strings([b"answer"]), **outputs}


@pytest.mark.usefixtures("_loud_is_speech")
def test_a_spoken_question_about_a_picture(serve: Serve, dial: Dial) -> None:
    running = serve()
    peer = dial(running, "model=llm")
    peer.send("conversation.item.create", item=picture())
    peer.say(3.2)
    first = peer.until("response.output_item.added")["trimodal"]
    last = peer.until("response.done")["response"]
    assert last["output"][0]["content"][0]["text"] == "A seven."
    assert first == {"heard": WORDS, "labels": LABELS}
    assert {name: last["trimodal"][name] for name in first} == first
    assert last["trimodal"]["stages_ms"] == {"total": 5.0}
    (request,) = requests(running)
    assert request.model == "assistant"
    assert set(request.inputs) == {"text_input", "image", "truncation"}, "the audio is not heard once more"
    assert request.inputs["text_input"].tolist() == [WORDS.encode()]
    assert request.inputs["image"].tolist() == [FILE]


def test_events_tell_of_a_picture_without_its_file(serve: Serve, dial: Dial) -> None:
    peer = dial(serve(), "model=llm")
    peer.send("conversation.item.create", item=picture("which digit?", id="a"))
    peer.until("conversation.item.done")
    peer.send("conversation.item.retrieve", item_id="a")
    peer.until("conversation.item.retrieved")
    items = [event["item"]["content"] for event in peer.events if "item" in event]
    assert items == [[{"type": "input_image"}, {"type": "input_text", "text": "which digit?"}]] * 3


def test_the_talk_goes_on_and_what_was_seen_is_not_seen_again(serve: Serve, dial: Dial) -> None:
    running = serve()
    peer = dial(running, "model=llm")
    peer.send("session.update", session={"type": "realtime", "instructions": "be brief"})
    answered(peer, item("hi"))
    answered(peer, picture("which digit?"))
    response = answered(peer, item("are you sure?"))
    assert response["trimodal"]["heard"] == ""
    assert [one.model for one in requests(running)] == ["llm", "assistant", "assistant"]
    last = requests(running)[-1]
    assert "image" not in last.inputs
    assert last.inputs["text_input"].tolist() == [b"are you sure?"]
    assert history(last) == [
        {"role": "system", "content": "be brief", "labels": []},
        {"role": "user", "content": "hi", "labels": []},
        {"role": "assistant", "content": ANSWER, "labels": []},
        {"role": "user", "content": "which digit?", "labels": SEEN},
        {"role": "assistant", "content": "A seven.", "labels": []},
    ]


@pytest.mark.parametrize(
    ("items", "asked", "before"),
    [
        ([picture(), item("b")], ("b", FILE), []),
        ([item("a"), picture()], ("a", FILE), []),
        ([item("a"), picture(), item("b")], ("b", FILE), [("a", False)]),
        ([picture("a"), item("b")], ("b", None), [("a", True)]),
        ([picture(contents=b"1"), picture(contents=b"2"), item("b")], ("b", b"2"), [("", True)]),
        ([picture("a", contents=b"1"), picture(contents=b"2"), item("b")], ("b", b"2"), [("a", True)]),
        ([picture(), item("x", role="assistant"), item("b")], ("b", None), [("", True), ("x", False)]),
    ],
)
def test_which_words_a_picture_goes_with(
    serve: Serve, dial: Dial, items: list[Event], asked: tuple[str, bytes | None], before: list[Any]
) -> None:
    """What is spoken cannot have a picture in its item."""
    running = serve()
    answered(dial(running, "model=llm"), *items)
    *looked, request = requests(running)
    assert request.inputs["text_input"].tolist() == [asked[0].encode()]
    assert request.inputs.get("image", strings([])).tolist() == ([asked[1]] if asked[1] else [])
    told = history(request) if before else []
    assert [(one["content"], one["labels"] == SEEN) for one in told] == before
    assert [one.model for one in looked] == ["vision"] * any(seen for _, seen in before)


def test_a_session_of_the_assistant_asks_it_for_everything(serve: Serve, dial: Dial) -> None:
    running = serve()
    answered(dial(running, "model=assistant"), item("hi"))
    (request,) = requests(running)
    assert request.model == "assistant"
    assert set(request.inputs) == {"text_input", "truncation"}


def test_without_its_picture_the_talk_is_the_llms_again(serve: Serve, dial: Dial) -> None:
    running = serve()
    peer = dial(running, "model=llm")
    peer.send("conversation.item.create", item=picture(id="a"))
    peer.send("conversation.item.delete", item_id="a")
    answered(peer, item("hi"))
    assert [one.model for one in requests(running)] == ["llm"]


@pytest.mark.usefixtures("_loud_is_speech")
def test_speaking_ends_the_assistant(serve: Serve, dial: Dial) -> None:
    running = serve(fake_triton(assistant=slow))
    peer = dial(running, "model=llm")
    peer.send("conversation.item.create", item=picture())
    peer.say(3.2)
    peer.until("response.output_text.delta")
    peer.append(0.3)
    done = peer.until("response.done")["response"]
    assert done["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
    wait_until(lambda: cancelled(running.triton) == ["assistant"], "the generation ends")
    peer.append(1.0, level=0.0)
    peer.until("response.output_text.delta")
    told = history(requests(running)[-1])
    assert [one["role"] for one in told] == ["user", "assistant"]
    assert told[0] == {"role": "user", "content": WORDS, "labels": SEEN}
    assert told[1]["content"].startswith("word")
    assert "vision" not in [one.model for one in requests(running)]


async def blind(request: Request):  # type: ignore[no-untyped-def]
    """An assistant whose images are none."""
    if "image" in request.inputs:
        raise InvalidArgument("saw: image: not a JPEG, PNG or WebP file")
    async for outputs in assistant(request):
        yield outputs


def test_a_picture_that_is_none_is_told_and_forgotten(serve: Serve, dial: Dial) -> None:
    running = serve(fake_triton(assistant=blind))
    peer = dial(running, "model=llm")
    peer.send("conversation.item.create", item=picture("which digit?", id="bad"))
    error = refused(peer)
    assert (error["param"], error["type"]) == ("item.content", "invalid_request_error")
    assert error["message"] == "item 'bad' is forgotten: image: not a JPEG, PNG or WebP file"
    answered(peer)
    assert [one.model for one in requests(running)] == ["assistant", "llm"]


def test_an_earlier_picture_that_is_none_is_told_and_forgotten(serve: Serve, dial: Dial) -> None:
    def sees_nothing(request: Request) -> Any:
        raise InvalidArgument("image[0]: not a JPEG, PNG or WebP file")

    running = serve(fake_triton(vision=sees_nothing))
    peer = dial(running, "model=llm")
    for one in (picture("a", id="bad"), picture("which digit?")):
        peer.send("conversation.item.create", item=one)
    assert refused(peer)["message"].startswith("item 'bad' is forgotten: ")
    answered(peer)
    assert [one["content"] for one in history(requests(running)[-1])] == ["a"]


@pytest.mark.parametrize("items", [[picture()], [picture("a"), item("x", role="assistant")]])
def test_nothing_to_answer(serve: Serve, dial: Dial, items: list[Event]) -> None:
    running = serve()
    peer = dial(running, "model=llm")
    for one in items:
        peer.send("conversation.item.create", item=one)
    assert "nothing to answer" in refused(peer)["message"]
    assert requests(running) == []


def test_the_oldest_pictures_are_forgotten(serve: Serve, dial: Dial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MAX_PICTURE_BYTES", 2 * len(FILE))
    running = serve()
    peer = dial(running, "model=llm")
    answered(peer, *(picture(name) for name in "abc"))
    assert [(one["content"], one["labels"] == SEEN) for one in history(requests(running)[-1])] == [
        ("a", False), ("b", True),
    ]  # fmt: skip


def test_a_key_without_the_assistant_sends_no_pictures(serve: Serve, dial: Dial, file: Path) -> None:
    texts = add_key(file, Key(name="texts", models=("llm",)))
    running = serve(keys=file)
    with pytest.raises(InvalidStatus, match="403"):
        dial(running, "model=assistant", **bearer(texts))
    peer = dial(running, "model=llm", **bearer(texts))
    peer.receive()
    peer.send("conversation.item.create", item=picture("which digit?"))
    assert peer.receive()["error"]["code"] == "model_not_allowed"
    peer.send("session.update", session={"type": "realtime", "model": "assistant"})
    assert peer.receive()["error"]["code"] == "model_not_allowed"
    answered(peer, item("hi"))
    assert [one.model for one in requests(running)] == ["llm"]


def test_a_key_for_the_assistant_alone(serve: Serve, dial: Dial, file: Path) -> None:
    secret = add_key(file, Key(name="asks", models=("assistant",)))
    running = serve(keys=file)
    assert status(dial, running, "model=llm", **bearer(secret)) == 403
    answered(dial(running, "model=assistant", **bearer(secret)), picture("which digit?"))
