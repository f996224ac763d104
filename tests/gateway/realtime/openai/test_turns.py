"""When a turn is over: semantic_vad, and listeners who only say "mhm"."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.doubles.waiting import wait_until
from tests.gateway.conftest import Running, Serve, continuing, fake_triton
from tests.gateway.realtime.conftest import Dial, Peer, pcm, turns
from tests.gateway.realtime.openai.test_conversation import item, messages
from trimodal.audio.values import Samples
from trimodal.client.client import Client
from trimodal.client.transports.base import Request, Tensors
from trimodal.client.transports.fake import FakeSpeech, FakeTransport, Streaming, scripted
from trimodal.errors import Unavailable
from trimodal.gateway.access import Caller
from trimodal.gateway.keys import ANYBODY
from trimodal.gateway.quota import Quota
from trimodal.gateway.realtime.hearing import completeness, detection
from trimodal.gateway.realtime.hearing.completeness import is_complete
from trimodal.gateway.realtime.openai import buffer
from trimodal.gateway.realtime.openai.config import TranscriptionSession
from trimodal.gateway.realtime.openai.dialect import OpenAIDialect
from trimodal.gateway.realtime.openai.early import EarlyBudget
from trimodal.gateway.realtime.outbox import Outbox
from trimodal.speech.session.vad import EnergyDetector

pytestmark = pytest.mark.usefixtures("_loud_is_speech")
LONG = "word " * 100
JUDGED = "continue_final_message"  # of what the language model is asked: whether words are a whole sentence


def finished(*answers: float):  # type: ignore[no-untyped-def]
    """A model of turns with these answers, in order; `asked` has the audio."""
    left, asked = list(answers), []

    def model(request: Request) -> Tensors:
        asked.append(request.inputs["audio"])
        return {"finished": np.array([[left.pop(0)]], np.float32)}

    return model, asked


def semantic(serve: Serve, dial: Dial, model: object, **fields: object) -> Peer:
    return semantic_of(serve(fake_triton(turn=model)), dial, **fields)


def semantic_of(running: Running, dial: Dial, **fields: object) -> Peer:
    peer = dial(running, "model=llm")
    peer.send("session.update", session=turns(type="semantic_vad", **fields))
    told = peer.until("session.updated")["session"]["audio"]["input"]["turn_detection"]
    assert told == {
        "type": "semantic_vad", "eagerness": "auto", "create_response": True, "interrupt_response": True,
        **fields,
    }  # fmt: skip
    return peer


def test_a_pause_in_which_a_turn_sounds_over_is_its_end(serve: Serve, dial: Dial) -> None:
    model, asked = finished(0.95)
    peer = semantic(serve, dial, model)
    peer.say(10.0, silence=0.95)
    assert peer.until("input_audio_buffer.speech_stopped")["audio_end_ms"] == pytest.approx(10_000, abs=100)
    assert peer.until("response.done")["response"]["status"] == "completed"
    ((rows, samples),) = [audio.shape for audio in asked]
    assert rows == 1
    assert 7.5 * 16_000 < samples <= 8 * 16_000
    assert np.abs(asked[0][0, -3_200:]).max() < 0.01, "it ends with the pause"


def judged(running: Running) -> list[str]:
    """The words that the language model was asked about."""
    asked = [one.inputs for one in running.triton.requests if JUDGED in one.inputs]
    return [json.loads(inputs["messages"][0])[0]["content"] for inputs in asked]


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What it said; once it is here the turn was weighed anew before any more audio of it is taken in."""
    told: list[bool] = []

    async def noted(*asked: Any) -> bool:
        told.append(await is_complete(*asked))
        return told[-1]

    monkeypatch.setattr(buffer, "is_complete", noted)
    return told


@pytest.mark.parametrize(
    ("token", "silences"), [(".", [(0.15, True)]), (" and", [(0.75, False), (0.4, True)])]
)
def test_the_language_model_says_whether_the_words_are_a_whole_sentence(
    serve: Serve, dial: Dial, verdicts: list[bool], token: str, silences: list[tuple[float, bool]]
) -> None:
    model, _ = finished(0.95)
    running = serve(fake_triton(turn=model, llm=continuing(token)))
    peer = semantic_of(running, dial)
    peer.say(1.5, silence=0.25)
    wait_until(lambda: judged(running) == ["what is this"], "the words are asked about")
    wait_until(lambda: verdicts == [token == "."], "they are judged")
    for seconds, ends in silences:
        peer.append(seconds, level=0.0)
        peer.settle()
        assert ("input_audio_buffer.speech_stopped" in peer.kinds()) is ends


def test_sound_and_words_are_judged_at_the_same_time(
    serve: Serve, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer, "JUDGED_WITHIN_S", 60.0)
    both = threading.Event()

    async def by_sound(request: Request) -> Tensors:
        while not both.is_set():
            await asyncio.sleep(0.005)
        return {"finished": np.array([[0.95]], np.float32)}

    running = serve(fake_triton(turn=by_sound, llm=continuing(".")))
    peer = semantic_of(running, dial)
    peer.say(1.5, silence=0.25)
    wait_until(lambda: judged(running) == ["what is this"], "the words are asked about meanwhile")
    both.set()
    peer.append(0.15, level=0.0)
    peer.until("response.created")


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The language model may take minutes to judge."""
    monkeypatch.setattr(completeness, "WITHIN_MS", 200_000)


def answers_when(may: threading.Event, token: str) -> Streaming:
    """A language model that says when it may whether the words are a whole sentence, and answers slowly."""
    answers = continuing(token, scripted("a " * 500, step=0.03))

    async def model(request: Request) -> AsyncIterator[Tensors]:
        while JUDGED in request.inputs and not may.is_set():
            await asyncio.sleep(0.005)
        async for outputs in answers(request):
            yield outputs

    return model


def cancelled(running: Running, name: str) -> int:
    """Generations that were ended of those with this input."""
    return sum(name in request.inputs for request in running.triton.cancelled)


def paused(serve: Serve, dial: Dial, may: threading.Event, token: str) -> tuple[Running, Peer]:
    """A turn in a pause whose words are being judged, and whose answer begins meanwhile."""
    running = serve(fake_triton(turn=finished(0.95, 0.95)[0], llm=answers_when(may, token)))
    peer = semantic_of(running, dial)
    peer.say(1.5, silence=0.25)
    wait_until(lambda: len(judged(running)) == 1 and messages(running.triton), "an answer begins")
    return running, peer


@pytest.mark.usefixtures("_patient")
def test_an_answer_is_given_up_where_the_words_are_no_whole_sentence(
    serve: Serve, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer, "LATE_S", 90.0)
    may = threading.Event()
    running, peer = paused(serve, dial, may, " and")
    assert cancelled(running, "messages") == 0
    may.set()
    wait_until(lambda: cancelled(running, "messages") == 1, "it is given up")
    assert "input_audio_buffer.speech_stopped" not in peer.kinds()


@pytest.mark.usefixtures("_patient")
def test_who_sends_no_more_audio_is_waited_for_as_the_last_verdict_says(
    serve: Serve, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer, "silence_s", lambda _finished, complete, *_: 0.5 if complete else 90.0)
    may = threading.Event()
    running = serve(fake_triton(turn=finished(0.95)[0], llm=answers_when(may, ".")))
    peer = semantic_of(running, dial)
    peer.say(1.5, silence=0.25)
    wait_until(lambda: len(judged(running)) == 1, "the words are asked about")
    peer.settle()  # the audio is taken in, and the wait for more begun
    may.set()
    peer.until("input_audio_buffer.speech_stopped")
    peer.until("response.created")
    peer.send("response.cancel")
    peer.until("response.done")


@pytest.mark.usefixtures("_patient")
def test_when_words_come_those_before_are_judged_no_further(serve: Serve, dial: Dial) -> None:
    running, peer = paused(serve, dial, threading.Event(), ".")
    peer.say(1.5, silence=0.25)
    wait_until(lambda: cancelled(running, JUDGED) == 1, "nobody waits for it")
    wait_until(lambda: judged(running) == ["what is this", "what is this well"], "all words are judged")


@pytest.mark.usefixtures("_patient")
@pytest.mark.parametrize("ending", ["input_audio_buffer.commit", "input_audio_buffer.clear", ""])
def test_words_of_a_turn_that_is_over_are_judged_no_further(serve: Serve, dial: Dial, ending: str) -> None:
    running, peer = paused(serve, dial, threading.Event(), ".")
    assert cancelled(running, JUDGED) == 0
    if ending:
        peer.send(ending)
    else:
        peer.socket.close()
    wait_until(lambda: cancelled(running, JUDGED) == 1, "nobody waits for it")


def test_a_pause_in_which_it_does_not_is_waited_out(serve: Serve, dial: Dial) -> None:
    model, asked = finished(0.0, 0.95)
    peer = semantic(serve, dial, model, eagerness="low")
    peer.say(1.5, silence=3.0)  # six times what ends a turn by server_vad
    peer.say(1.7, silence=1.75)
    assert peer.until("input_audio_buffer.speech_stopped")["audio_end_ms"] == pytest.approx(6_200, abs=100)
    assert [event["type"] for event in peer.events].count("input_audio_buffer.speech_started") == 1
    assert len(asked) == 2


def test_where_the_model_is_not_served_a_silence_ends_a_turn_and_it_is_said(serve: Serve, dial: Dial) -> None:
    peer = dial(serve(), "model=llm")
    peer.send("session.update", session=turns(type="semantic_vad", interrupt_response=False))
    session = peer.until("session.updated")["session"]
    assert session["audio"]["input"]["turn_detection"] == {
        "type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": 500,
        "create_response": True, "interrupt_response": False,
    }  # fmt: skip
    assert "the model 'turn' is not served here" in session["trimodal"]["turn_detection"]
    peer.say(1.5)
    peer.until("response.done")


def refuses(request: Request) -> Tensors:
    raise Unavailable("the queue is full")


async def hangs(request: Request) -> Tensors:
    await asyncio.Event().wait()
    return {}


@pytest.mark.parametrize("model", [refuses, hangs])
def test_where_the_model_does_not_answer_a_turn_ends_all_the_same(
    serve: Serve, dial: Dial, model: object
) -> None:
    peer = semantic(serve, dial, model)
    peer.say(1.5, silence=0.8)
    assert peer.until("input_audio_buffer.speech_stopped")["audio_end_ms"] == pytest.approx(1_500, abs=100)
    assert peer.until("response.done")["response"]["status"] == "completed"


def test_one_kind_of_detection_replaces_the_other(serve: Serve, dial: Dial) -> None:
    model, _ = finished()
    peer = semantic(serve, dial, model)
    peer.send("session.update", session=turns(type="server_vad", silence_duration_ms=700))
    told = peer.until("session.updated")["session"]["audio"]["input"]["turn_detection"]
    assert (told["type"], told["silence_duration_ms"]) == ("server_vad", 700)
    peer.send("session.update", session=turns(type="semantic_vad", eagerness="hasty"), event_id="mine")
    error = peer.receive()["error"]
    assert (error["param"], error["event_id"]) == ("session.audio.input.turn_detection.eagerness", "mine")


def answering(serve: Serve, dial: Dial, word: str) -> tuple[Running, Peer]:
    """A session whose answer runs, and that hears this word within the first 0.3 s of each turn."""
    triton = fake_triton(llm=scripted(LONG, step=0.03), speech=FakeSpeech((word, 0.1, 0.3)))
    running = serve(triton)
    peer = dial(running, "model=llm")
    peer.send("session.update", session=turns(type="server_vad"))
    peer.ask(item("hi"))
    peer.until("response.output_text.delta")
    return running, peer


def test_who_only_listens_does_not_interrupt_and_is_not_answered(serve: Serve, dial: Dial) -> None:
    running, peer = answering(serve, dial, "Mhm.")
    peer.say(0.35)
    heard = peer.until("conversation.item.input_audio_transcription.completed")
    assert heard["transcript"] == "Mhm."
    assert peer.until("response.done")["response"]["status"] == "completed"
    peer.ask(item("and now?"))
    peer.until("response.output_text.delta")
    assert [one["content"].strip()[:8] for one in messages(running.triton)] == [
        "hi", "word wor", "Mhm.", "and now?"
    ]  # fmt: skip
    assert peer.kinds().count("response.created") == 2


@pytest.mark.parametrize(("word", "seconds"), [("Stop!", 0.35), ("Mhm.", 1.5)])
def test_words_and_long_speech_interrupt(serve: Serve, dial: Dial, word: str, seconds: float) -> None:
    running, peer = answering(serve, dial, word)
    peer.say(seconds)
    done = peer.until("response.done")["response"]
    assert done["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
    peer.until("response.created")
    wait_until(lambda: len(running.triton.cancelled) >= 1, "the generation ends")


def test_of_a_turn_that_goes_on_only_what_is_judged_is_kept(
    serve: Serve, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def keep(*fields: object) -> object:
        made.append(utterance(*fields))  # type: ignore[arg-type]
        return made[-1]

    utterance = buffer._Utterance
    monkeypatch.setattr(buffer, "_Utterance", keep)
    peer = semantic(serve, dial, finished()[0])
    for _ in range(10):
        peer.append(1.0)
    peer.settle()
    assert np.hstack(made[0].recent).size == buffer.JUDGED


def test_audio_that_is_refused_does_not_keep_a_turn_open(serve: Serve, dial: Dial) -> None:
    peer = dial(serve(), "model=llm")
    peer.append(1.5)
    peer.send("input_audio_buffer.append", audio="AAAA")  # three bytes
    peer.refused()
    peer.until("input_audio_buffer.speech_stopped")


async def test_audio_ahead_of_its_time_cannot_be_late_after_a_gap_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A question of six seconds that was sent at once ended with whatever had come of it within a second."""
    loop, jumped = asyncio.get_running_loop(), 0.0
    time = loop.time
    monkeypatch.setattr(loop, "time", lambda: time() + jumped)
    outbox, config = Outbox(), TranscriptionSession()
    client, caller = Client(transport=FakeTransport(speech=FakeSpeech())), Caller(ANYBODY, "one")
    session = OpenAIDialect("one", client, caller, Quota(), outbox, config, EarlyBudget(0.0))

    async def passes(seconds: float) -> None:
        nonlocal jumped
        jumped += seconds
        for _ in range(10):
            await asyncio.sleep(0.001)

    async def append(seconds: float, level: float = 0.1) -> None:
        audio = pcm(seconds, level=level)
        await session.handle({"type": "input_audio_buffer.append", "audio": audio})

    def stopped() -> int:
        return sum("speech_stopped" in line for line in outbox._lines)

    await append(1.0)
    await append(1.0, level=0.0)
    for turn, gap_s in enumerate((0.0, 100.0), 1):
        await passes(gap_s)
        assert stopped() == turn
        for _ in range(60):
            await append(1.0)
        await passes(20.0)  # it would be spoken for half a minute more
        assert stopped() == turn
    await session.aclose()


def test_a_long_piece_of_audio_lets_others_have_their_turn(
    serve: Serve, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six minutes in one event held up everybody for a second and more."""
    turns_of_others, seen = [0], list[int]()

    class Detector(EnergyDetector):
        def judge(self, frames: Samples) -> NDArray[np.float32]:
            seen.append(len(turns_of_others))
            asyncio.get_running_loop().call_soon(turns_of_others.append, 0)
            return super().judge(frames)

    monkeypatch.setattr(detection, "speech_detector", Detector)
    peer = dial(serve(), "model=llm")
    peer.append(10.0, level=0.0)
    peer.send("input_audio_buffer.clear")
    peer.until("input_audio_buffer.cleared")
    assert len(seen) > 100
    assert len(set(seen)) >= 3
