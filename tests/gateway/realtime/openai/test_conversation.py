"""Conversation sessions: what is said or written is answered in text."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from tests.doubles.waiting import wait_until
from tests.gateway.conftest import ANSWER, LIMIT_S, Serve, fails, fake_triton, held, with_note
from tests.gateway.realtime.conftest import WORDS, Dial, Event, Peer, turns
from trimodal.client.errors import ConnectionLost
from trimodal.client.transports.fake import FakeTransport, scripted
from trimodal.errors import Unavailable
from trimodal.gateway.realtime.openai import conversation
from trimodal.gateway.realtime.openai.items import message_item
from trimodal.gateway.realtime.outbox import Outbox

LONG = "word " * 400


def item(text: str, role: str = "user", **fields: object) -> Event:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}], **fields}


def messages(triton: FakeTransport) -> list[dict[str, str]]:
    """Of the last request to the llm model."""
    request = [one for one in triton.requests if one.model == "llm"][-1]
    return json.loads(request.inputs["messages"][0])  # type: ignore[no-any-return]


def cancelled(triton: FakeTransport) -> list[str]:
    return [request.model for request in triton.cancelled]


def test_openais_own_client(serve: Serve) -> None:
    running = serve()

    async def talk() -> tuple[list[str], str]:
        text, kinds = "", []
        async with running.openai_async() as client, client.realtime.connect(model="llm") as connection:
            await connection.session.update(
                session={"type": "realtime", "output_modalities": ["text"], "instructions": "be brief"}
            )
            await connection.conversation.item.create(item=item("hi"))  # type: ignore[arg-type]
            await connection.response.create()
            async for event in connection:
                kinds.append(event.type)
                if event.type == "response.output_text.delta":
                    text += event.delta
                if event.type == "response.done":
                    assert event.response.status == "completed"
                    assert event.response.usage.output_tokens > 0  # type: ignore[union-attr,operator]
                    break
        return kinds, text

    kinds, text = asyncio.run(asyncio.wait_for(talk(), LIMIT_S))
    assert text == ANSWER
    assert list(dict.fromkeys(kinds)) == [
        "session.created", "session.updated", "conversation.item.added", "conversation.item.done",
        "response.created", "response.output_item.added", "response.content_part.added",
        "response.output_text.delta", "response.output_text.done", "response.content_part.done",
        "response.output_item.done", "response.done",
    ]  # fmt: skip
    assert messages(running.triton) == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
    ]


@pytest.mark.usefixtures("_loud_is_speech")
def test_what_was_said_is_answered_and_remembered(serve: Serve, dial: Dial) -> None:
    running = serve()
    peer = dial(running, "model=llm")
    for _ in range(2):
        peer.say(3.2)
        assert peer.until("response.done")["response"]["status"] == "completed"
    said, answered = {"role": "user", "content": WORDS}, {"role": "assistant", "content": ANSWER}
    assert messages(running.triton) == [said, answered, said]
    begun = [one.parameters for one in running.triton.requests if one.parameters.get("sequence_start")]
    assert len({one["sequence_id"] for one in begun}) == 2
    assert not any(one.get("language") for one in begun), "it is told apart in each turn anew"


@pytest.mark.usefixtures("_loud_is_speech")
def test_speaking_ends_the_answer_that_runs(serve: Serve, dial: Dial) -> None:
    running = serve(fake_triton(llm=scripted(LONG, step=0.02)))
    peer = dial(running, "model=llm")
    peer.say(3.2)
    peer.until("response.output_text.delta")
    peer.append(0.3)
    peer.until("input_audio_buffer.speech_started")
    done = peer.until("response.done")["response"]
    assert done["status"] == "cancelled"
    assert done["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
    assert done["output"][0]["status"] == "incomplete"
    assert done["output"][0]["content"][0]["text"].startswith("word")
    wait_until(lambda: cancelled(running.triton) == ["llm"], "the generation ends")
    peer.append(1.0, level=0.0)
    peer.until("response.created")
    peer.until("response.output_text.delta")
    heard = messages(running.triton)
    assert [one["role"] for one in heard] == ["user", "assistant", "user"]
    assert heard[1]["content"].startswith("word")


@pytest.mark.usefixtures("_loud_is_speech")
def test_speaking_may_be_told_not_to_interrupt(serve: Serve, dial: Dial) -> None:
    peer = dial(serve(fake_triton(llm=scripted("word " * 50, step=0.02))), "model=llm")
    vad = turns(type="server_vad", interrupt_response=False, create_response=False)
    peer.send("session.update", session=vad)
    peer.say(3.2)
    peer.until("conversation.item.input_audio_transcription.completed")
    peer.send("response.create")
    peer.until("response.output_text.delta")
    peer.append(0.3)
    peer.until("input_audio_buffer.speech_started")
    assert peer.until("response.done")["response"]["status"] == "completed"


@pytest.mark.usefixtures("_loud_is_speech")
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_question_that_does_not_interrupt_is_answered_when_the_answer_is_done(
    serve: Serve, dial: Dial, cancelled: bool
) -> None:
    answer: dict[str, str] = {}
    running = serve(fake_triton(llm=scripted("word " * 80, step=0.02)))
    peer = dial(running, "model=llm")
    vad = turns(type="server_vad", interrupt_response=False)
    peer.send("session.update", session=vad)
    peer.say(3.2)
    peer.until("response.output_text.delta")
    for _ in range(2):  # the answer to both comes once
        peer.say(1.2)
        peer.until("conversation.item.input_audio_transcription.completed")
    if cancelled:
        peer.send("response.cancel")
    for status in ("cancelled" if cancelled else "completed", "completed"):
        done = peer.until("response.done")["response"]
        assert done["status"] == status
        answer = answer or {"role": "assistant", "content": done["output"][0]["content"][0]["text"].strip()}
    said = [{"role": "user", "content": words} for words in (WORDS, "what is this?", "what is this?")]
    assert messages(running.triton) == [said[0], answer, *said[1:]]
    assert peer.kinds().count("response.created") == 2


@pytest.mark.usefixtures("_loud_is_speech")
def test_what_is_said_before_the_answers_first_word_comes_after_it(serve: Serve, dial: Dial) -> None:
    heard = threading.Event()
    running = serve(fake_triton(llm=held(heard)))
    peer = dial(running, "model=llm")
    vad = turns(type="server_vad", interrupt_response=False)
    peer.send("session.update", session=vad)
    for _ in range(2):
        peer.say(1.2)
        peer.until("conversation.item.input_audio_transcription.completed")
        wait_until(lambda: "llm" in [one.model for one in running.triton.requests], "the question is asked")
    heard.set()
    for _ in range(2):
        assert peer.until("response.done")["response"]["status"] == "completed"
    assert [one["role"] for one in messages(running.triton)] == ["user", "assistant", "user"]


def test_an_answer_waits_for_the_words_of_a_turn(serve: Serve, dial: Dial) -> None:
    running = serve()
    peer = dial(running, "model=llm")
    peer.send("session.update", session={"type": "realtime", "audio": {"input": {"turn_detection": None}}})
    peer.append(3.2)
    peer.send("input_audio_buffer.commit")
    peer.send("response.create", response={"instructions": "be exact", "max_output_tokens": 2})
    done = peer.until("response.done")["response"]
    assert done["status"] == "incomplete"
    assert done["status_details"]["reason"] == "max_output_tokens"
    assert messages(running.triton) == [
        {"role": "system", "content": "be exact"},
        {"role": "user", "content": WORDS},
    ]


def test_cancel(serve: Serve, dial: Dial) -> None:
    running = serve(fake_triton(llm=scripted(LONG, step=0.02)))
    peer = dial(running, "model=llm")
    peer.ask(item("hi"))
    peer.send("response.cancel")  # before the first word
    first = peer.until("response.done")["response"]
    assert (first["status"], first["output"]) == ("cancelled", [])
    peer.send("response.create")
    peer.until("response.output_text.delta")
    peer.send("response.cancel")
    done = peer.until("response.done")["response"]
    assert done["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
    wait_until(lambda: "llm" in cancelled(running.triton), "the generation ends")
    peer.send("response.cancel", event_id="late")
    error = peer.receive()["error"]
    assert (error["code"], error["event_id"]) == ("response_cancel_not_active", "late")


def test_one_response_at_a_time(serve: Serve, dial: Dial) -> None:
    peer = dial(serve(fake_triton(llm=scripted(LONG, step=0.02))), "model=llm")
    peer.ask(item("hi"))
    peer.until("response.output_text.delta")
    peer.send("response.create")
    assert peer.refused()["code"] == "conversation_already_has_active_response"
    peer.socket.close()


def test_items_have_their_places(serve: Serve, dial: Dial) -> None:
    running = serve()
    peer = dial(running, "model=llm")
    peer.send("conversation.item.create", item=item("one", id="a"))
    peer.send("conversation.item.create", item=item("two", role="assistant", id="b"))
    peer.send("conversation.item.create", item=item("first", role="system", id="s"), previous_item_id="root")
    peer.send("conversation.item.create", item=item("after one", id="c"), previous_item_id="a")
    peer.send("conversation.item.create", item=item("gone", id="d"))
    peer.send("conversation.item.delete", item_id="d")
    peer.send("conversation.item.retrieve", item_id="b")
    assert peer.until("conversation.item.retrieved")["item"]["content"][0]["text"] == "two"
    peer.send("response.create")
    peer.until("response.done")
    assert [one["content"] for one in messages(running.triton)] == ["first", "one", "after one", "two"]


def failed(peer: Peer) -> Event:
    peer.ask(item("hi"))
    response: Event = peer.until("response.done")["response"]
    assert response["status"] == "failed"
    return response["status_details"]["error"]  # type: ignore[no-any-return]


def test_a_refused_answer_leaves_the_session_open(serve: Serve, dial: Dial) -> None:
    triton = fake_triton()
    llm = triton.functions["llm"]

    triton.functions["llm"] = fails(Unavailable("the queue is full"))
    peer = dial(serve(triton), "model=llm")
    assert failed(peer)["code"] == "overloaded"
    assert peer.receive()["type"] == "error"
    triton.functions["llm"] = llm
    peer.send("response.create")
    assert peer.until("response.done")["response"]["status"] == "completed"


def test_a_server_that_dies_ends_the_session(serve: Serve, dial: Dial) -> None:
    peer = dial(serve(fake_triton(llm=fails(ConnectionLost("gone")))), "model=llm")
    assert failed(peer)["code"] == "upstream_failed"
    assert peer.receive()["error"]["code"] == "upstream_failed"
    assert peer.closed() == (1011, "the model server did not answer")


def test_nothing_to_answer(serve: Serve, dial: Dial) -> None:
    peer = dial(serve(), "model=llm")
    peer.send("response.create")
    assert (
        "nothing to answer" in peer.until("response.done")["response"]["status_details"]["error"]["message"]
    )


def test_truncation_is_the_sessions(serve: Serve, dial: Dial) -> None:
    running = serve()
    peer = dial(running, "model=llm")
    peer.send("conversation.item.create", item=item("hi"))
    ratio = {"type": "retention_ratio", "retention_ratio": 0.5}
    for given, sent in ((None, b"auto"), ("disabled", b"disabled"), (ratio, json.dumps(ratio).encode())):
        if given:
            peer.send("session.update", session={"type": "realtime", "truncation": given})
            assert peer.until("session.updated")["session"]["truncation"] == given
        peer.send("response.create")
        peer.until("response.done")
        assert running.triton.requests[-1].inputs["truncation"].tolist() == [sent]
    limits = {**ratio, "token_limits": {"post_instructions": 9}}
    peer.send("session.update", session={"type": "realtime", "truncation": limits})
    assert peer.receive()["error"]["param"] == "session.truncation.token_limits"


def test_a_talk_that_was_trimmed_says_so(serve: Serve, dial: Dial) -> None:
    trims = with_note("Yes.", b'{"messages": 4, "tokens": 812}')
    peer = dial(serve(fake_triton(llm=trims)), "model=llm")
    peer.ask(item("hi"))
    response = peer.until("response.done")["response"]
    assert response["trimodal"]["trimmed"] == {"messages": 4, "tokens": 812}


def test_whole_turns_are_forgotten_and_told(
    serve: Serve, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bytes: 70,000 characters of Japanese are more than a request to the models may hold."""
    monkeypatch.setattr(conversation, "MAX_TALK_BYTES", 6_000)
    running = serve()
    peer = dial(running, "model=llm")
    peer.send("conversation.item.create", item=item("be brief", role="system", id="s"))
    for n in range(4):
        peer.send("conversation.item.create", item=item(f"{n}" + "日" * 300, id=f"q{n}"))
        peer.send("conversation.item.create", item=item("本" * 300, role="assistant", id=f"a{n}"))
    peer.ask(item("and now?", id="last"))
    peer.until("response.done")
    gone = [event["item_id"] for event in peer.events if event["type"] == "conversation.item.deleted"]
    assert gone == ["q0", "a0"], "with the next one they were too many; then there is room for some"
    kept = [one["content"][:2] for one in messages(running.triton)]
    assert kept == ["be", "1日", "本本", "2日", "本本", "3日", "本本", "an"]


def test_an_item_is_measured_when_it_changes_not_with_every_other(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []
    monkeypatch.setattr(conversation, "_size", lambda item: measured.append(item["id"]) or 1)
    talk = conversation.Conversation(Outbox())
    for n in range(20):
        content = [{"type": "input_text", "text": "hi"}]
        talk.create(message_item(f"i{n}", "user", content, "completed"), None)
    assert len(measured) == 20
