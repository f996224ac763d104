"""Words of a turn that come once the next has begun: both are answered together, and none is forgotten."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.gateway.conftest import LIMIT_S, Serve, fake_triton
from tests.gateway.realtime.conftest import Dial, Peer
from tests.gateway.realtime.openai.test_conversation import messages
from tests.gateway.realtime.test_ending import Draining
from trimodal.client.transports.base import Request
from trimodal.client.transports.fake import FakeSpeech, scripted
from trimodal.errors import Unavailable

pytestmark = pytest.mark.usefixtures("_loud_is_speech")
LONG = "word " * 100


class Behind(FakeSpeech):
    """Answers no chunk that completes its words until `go`."""

    go = False

    def __call__(self, request: Request) -> Any:
        outputs = super().__call__(request)
        return outputs if asyncio.iscoroutine(outputs) else self._late(outputs)

    async def _late(self, outputs: Any) -> Any:
        while not self.go and outputs["tentative"][0]:
            await asyncio.sleep(0.01)
        return outputs


def words_come_in_the_next_turn(peer: Peer, speech: Behind) -> None:
    """Says a question whose words are there once the next turn has begun."""
    peer.say(1.3, silence=0.7)
    peer.until("input_audio_buffer.speech_stopped")
    peer.append(0.5)
    peer.until("input_audio_buffer.speech_started")
    speech.go = True
    peer.until("conversation.item.input_audio_transcription.completed")


def test_late_words_of_a_turn_begin_no_answer_while_the_next_goes_on(serve: Serve, dial: Dial) -> None:
    speech = Behind(("what", 0.1, 0.3), delay_s=9.0)
    running = serve(fake_triton(speech=speech, llm=scripted(LONG, step=0.03)))
    peer = dial(running, "model=llm")
    words_come_in_the_next_turn(peer, speech)
    assert [request for request in running.triton.requests if request.model == "llm"] == []


def test_a_gateway_that_goes_down_answers_first_what_was_said_before_the_turn_that_goes_on(
    dial: Dial,
) -> None:
    """The session was ended at once: nothing ran in it."""
    speech = Behind(("what", 0.1, 0.3), delay_s=9.0)
    gateway = Draining(30 * LIMIT_S, speech=speech)
    peer = dial(gateway.running, "model=llm")
    words_come_in_the_next_turn(peer, speech)
    gateway.stop()
    assert peer.closed()[0] == 1001
    (done,) = (event["response"] for event in peer.events if event["type"] == "response.done")
    assert done["status"] == "completed"


class FirstTurn(Behind):
    """Hears nothing after its first turn, or refuses what comes then."""

    def __init__(self, *, refuses: bool) -> None:
        super().__init__(("what", 0.1, 0.3), delay_s=9.0)
        self._refuses = refuses
        self._first: object = None
        self._silence = FakeSpeech()

    def __call__(self, request: Request) -> Any:
        self._first = self._first or request.parameters["sequence_id"]
        if request.parameters["sequence_id"] == self._first:
            return super().__call__(request)
        if self._refuses:
            raise Unavailable("too many streams")
        return self._silence(request)


@pytest.mark.parametrize("second", ["a cough", "cleared", "refused"])
def test_a_question_is_answered_though_a_turn_without_words_began_before_its_own_were_there(
    serve: Serve, dial: Dial, second: str
) -> None:
    speech = FirstTurn(refuses=second == "refused")
    running = serve(fake_triton(speech=speech))
    peer = dial(running, "model=llm")
    peer.say(1.3, silence=0.7)
    peer.until("input_audio_buffer.speech_stopped")
    peer.append(0.5)
    peer.until("input_audio_buffer.speech_started")
    if second == "refused":
        assert peer.refused()["code"] == "overloaded"
    speech.go = True
    peer.until("conversation.item.input_audio_transcription.completed")
    peer.settle()
    assert "response.created" not in peer.kinds()
    if second == "cleared":
        peer.send("input_audio_buffer.clear")
    else:
        peer.append(1.0, level=0.0)
    assert peer.until("response.done")["response"]["status"] == "completed"
    assert messages(running.triton) == [{"role": "user", "content": "what"}]


def test_a_question_that_a_client_has_had_answered_is_not_answered_again(serve: Serve, dial: Dial) -> None:
    speech = FirstTurn(refuses=False)
    peer = dial(serve(fake_triton(speech=speech)), "model=llm")
    words_come_in_the_next_turn(peer, speech)
    peer.send("response.create")
    peer.until("response.done")
    peer.append(1.0, level=0.0)
    peer.until("conversation.item.input_audio_transcription.completed")
    peer.settle()
    assert [event["type"] for event in peer.events].count("response.created") == 1
