"""Answers that begin before a turn is over: through the socket, and their bounds."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import httpx
import pytest

from tests.doubles.waiting import wait_until
from tests.gateway.conftest import ANSWER, Running, Serve, fails, fake_triton
from tests.gateway.realtime.conftest import WORDS, Dial, Peer
from tests.gateway.realtime.openai.test_conversation import messages
from tests.gateway.realtime.test_access import bearer
from tests.gateway.test_metrics import read
from trimodal.client.transports.base import Request
from trimodal.client.transports.fake import FakeSpeech, Streaming, scripted
from trimodal.client.transports.tensors import strings
from trimodal.errors import Unavailable
from trimodal.gateway.keys import Key, add_key
from trimodal.gateway.realtime.openai.conversation import ConversationMessage
from trimodal.gateway.realtime.openai.early import OFF_S, EarlyBudget
from trimodal.gateway.realtime.openai.generation import Question

pytestmark = pytest.mark.usefixtures("_loud_is_speech")


def asked(running: Running) -> list[Request]:
    return [request for request in running.triton.requests if request.model == "llm"]


def counted(running: Running) -> dict[str, float]:
    """Early answers by outcome."""
    found = read(running.url).items()
    return {labels[0]: value for (name, *labels), value in found if name == "early_answers_total"}


def counts(running: Running, **expected: float) -> None:
    wait_until(lambda: counted(running) == expected, f"{expected} is counted")


def answered(peer: Peer) -> str:
    """The text of the answer that is done next."""
    response = peer.until("response.done")["response"]
    assert response["status"] == "completed"
    return str(response["output"][0]["content"][0]["text"])


def paused(serve: Serve, dial: Dial, seconds: float = 3.2, **models: object) -> tuple[Running, Peer]:
    """After speech of so long, and a pause that does not end the turn."""
    models = {"llm": scripted(ANSWER, step=0.03), **models}
    running = serve(fake_triton(**models))
    peer = dial(running, "model=llm")
    peer.say(seconds, silence=0.35)
    wait_until(lambda: asked(running), "the answer begins in the pause")
    assert asked(running)[0].inputs["ttft_deadline_ms"].tolist() == [1_000]
    return running, peer


def test_the_words_stand_and_the_answer_is_shown(serve: Serve, dial: Dial) -> None:
    running, peer = paused(serve, dial)
    peer.append(0.4, level=0.0)
    assert answered(peer) == ANSWER
    kinds = peer.kinds()
    assert kinds.index("conversation.item.input_audio_transcription.completed") < kinds.index(
        "response.created"
    ), "nothing of it is shown before the turn is over"
    assert messages(running.triton) == [{"role": "user", "content": WORDS}]
    counts(running, used=1)
    assert len(asked(running)) == 1
    peer.say(1.0)
    assert answered(peer) == ANSWER, "the next turn is answered as well"


def test_speech_goes_on_and_the_answer_is_given_up(serve: Serve, dial: Dial) -> None:
    running, peer = paused(serve, dial, 1.2)
    assert messages(running.triton) == [{"role": "user", "content": "what is this?"}]
    peer.append(1.6)
    wait_until(lambda: "llm" in [one.model for one in running.triton.cancelled], "its blocks are freed")
    assert "response.created" not in peer.kinds()
    peer.append(1.0, level=0.0)
    assert answered(peer) == ANSWER
    assert messages(running.triton)[-1] == {"role": "user", "content": WORDS}
    wait_until(lambda: counted(running).get("resumed") == 1, "it is counted")
    assert ("early_tokens_total", "resumed") in read(running.url)


class Mishears(FakeSpeech):
    """Hears another word than the one it commits."""

    def _answer(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        outputs = super()._answer(*args, **kwargs)
        tentative = outputs["tentative"][0].replace(b"this", self.heard)
        return {**outputs, "tentative": strings([tentative])}


@pytest.mark.parametrize(("heard", "outcome"), [(b"that", "changed"), (b"THIS", "used")])
def test_other_words_are_answered_anew_and_other_letters_are_not(
    serve: Serve, dial: Dial, heard: bytes, outcome: str
) -> None:
    speech = Mishears(("what", 0.1, 0.3), ("is", 0.4, 0.6), ("this?", 0.7, 0.9), delay_s=9.0)
    speech.heard = heard
    running, peer = paused(serve, dial, 1.2, speech=speech)
    peer.append(0.4, level=0.0)
    assert answered(peer) == ANSWER
    said = peer.events[-1]["response"]["output"]
    assert len(said) == 1
    questions = {"changed": ["what is that?", "what is this?"], "used": ["what is THIS?"]}
    assert [question(request) for request in asked(running)] == questions[outcome]
    counts(running, **{outcome: 1})


def question(request: Request) -> str:
    return str(json.loads(request.inputs["messages"][0])[-1]["content"])


@pytest.mark.parametrize("after_s", [0.0, 0.6], ids=["in the pause", "only after the turn"])
def test_a_busy_server_refuses_it_and_the_turn_is_answered_all_the_same(
    serve: Serve, dial: Dial, after_s: float
) -> None:
    answers = scripted(ANSWER)

    async def busy(request: Request):  # type: ignore[no-untyped-def]
        if "ttft_deadline_ms" in request.inputs:
            await asyncio.sleep(after_s)
            raise Unavailable("its first text would come too late")
        async for outputs in answers(request):
            yield outputs

    running, peer = paused(serve, dial, llm=busy)
    peer.append(0.4, level=0.0)
    assert answered(peer) == ANSWER
    counts(running, refused=1)
    peer.say(1.2)
    assert answered(peer) == ANSWER
    assert len(asked(running)) == 3, "none begins early for a while"


def test_an_answer_that_fails_early_fails_no_turn(serve: Serve, dial: Dial) -> None:
    failing = fails(Unavailable("no room"), "A")
    failed = threading.Event()

    async def fails_once(request: Request):  # type: ignore[no-untyped-def]
        try:
            async for outputs in failing(request):
                yield outputs
        finally:
            running.triton.functions["llm"] = scripted(ANSWER)
            failed.set()

    running = serve(fake_triton(llm=fails_once))
    peer = dial(running, "model=llm")
    peer.say(3.2, silence=0.35)
    wait_until(failed.is_set, "the answer of the pause fails")
    httpx.get(f"{running.url}/metrics")  # and the gateway, which is one thread, has heard of it by now
    peer.append(0.4, level=0.0)
    assert answered(peer) == ANSWER
    assert [len(one) for one in (asked(running), running.triton.cancelled)] == [2, 0]


def test_it_can_be_turned_off(serve: Serve, dial: Dial) -> None:
    running = serve(early_waste=0.0)
    peer = dial(running, "model=llm")
    peer.say(3.2, silence=0.35)
    peer.append(0.4, level=0.0)
    assert answered(peer) == ANSWER
    (request,) = asked(running)
    assert "ttft_deadline_ms" not in request.inputs
    counts(running)


@pytest.mark.parametrize(
    ("llm", "limits", "status", "then"),
    [
        # Once it is shown its 500 tokens are charged: the next one is refused.
        (scripted(ANSWER, prompt_tokens=500), {"tokens_per_minute": 400}, "completed", "failed"),
        # While it runs it holds all of a small limit, which does not refuse itself.
        (scripted(ANSWER, step=0.1), {"tokens_per_minute": 400}, "completed", ""),
        (scripted("a " * 500, step=0.03), {"requests_per_minute": 1}, "failed", ""),
    ],
    ids=["charged", "reserved", "beyond"],
)
def test_it_is_counted_against_its_keys_limits_once_the_turn_is_over(
    serve: Serve, dial: Dial, file: Path, llm: Streaming, limits: dict[str, int], status: str, then: str
) -> None:
    secret = add_key(file, Key(name="one", **limits))
    running = serve(fake_triton(llm=llm), keys=file)
    peer = dial(running, "model=llm", **bearer(secret))
    peer.say(3.2, silence=0.35)
    wait_until(lambda: asked(running), "the answer begins in the pause")
    peer.append(0.4, level=0.0)
    assert peer.until("response.done")["response"]["status"] == status
    if status == "failed":
        wait_until(lambda: "llm" in [one.model for one in running.triton.cancelled], "its blocks are freed")
    if then:
        peer.send("response.create")
        assert peer.until("response.done")["response"]["status"] == then


def test_one_that_is_shown_ends_with_the_session(serve: Serve, dial: Dial) -> None:
    running, peer = paused(serve, dial, llm=scripted("a " * 500, step=0.03))
    peer.append(0.4, level=0.0)
    peer.until("response.output_text.delta")
    peer.socket.close()
    wait_until(lambda: "llm" in [one.model for one in running.triton.cancelled], "its blocks are freed")


def test_what_one_key_wastes_closes_none_of_another(serve: Serve, dial: Dial, file: Path) -> None:
    keys = [add_key(file, Key(name=name)) for name in ("one", "another")]
    refused: list[Request] = []
    answers = scripted(ANSWER, step=0.03)

    async def busy_at_first(request: Request):  # type: ignore[no-untyped-def]
        if not refused:
            refused.append(request)
            raise Unavailable("its first text would come too late")
        async for outputs in answers(request):
            yield outputs

    running = serve(fake_triton(llm=busy_at_first), keys=file)
    for begun, secret in enumerate(keys, 1):
        peer = dial(running, "model=llm", **bearer(secret))
        peer.say(3.2, silence=0.35)
        wait_until(lambda begun=begun: len(asked(running)) == begun, "the answer begins in the pause")  # type: ignore[misc]
    assert "ttft_deadline_ms" in asked(running)[-1].inputs


def test_a_turn_that_is_cleared_is_answered_no_further(serve: Serve, dial: Dial) -> None:
    running, peer = paused(serve, dial, llm=scripted("a " * 500, step=0.03))
    peer.send("input_audio_buffer.clear")
    wait_until(lambda: "llm" in [one.model for one in running.triton.cancelled], "its blocks are freed")
    counts(running, dropped=1)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("What is C", "what is C?", True),
        ("What is C", "What is C++?", False),
        ("5 + 3", "5 * 3", False),
        ("यह कि", "यह की", False),
        ("I’m in Paris...", "I'm in Paris.", True),
    ],
)
def test_which_words_are_the_same(one: str, other: str, *, alike: bool) -> None:
    questions = [Question("llm", "", {}, (ConversationMessage("user", text),)) for text in (one, other)]
    assert questions[0].sounds_like(questions[1]) == alike


class TestBudget:
    def test_waste_is_bounded_by_its_share(self) -> None:
        """A turn every two seconds, two of three of which go on after the pause."""
        now, wasted, used = 0.0, 0, 0
        budget = EarlyBudget(0.25, clock=lambda: now)
        for turn in range(3_000):
            now += 2.0
            if budget.open:
                outcome = "used" if turn % 3 == 0 else "resumed"
                budget.ended(outcome, 200)
                used, wasted = used + (outcome == "used"), wasted + (outcome == "resumed")
        assert used > 20, "it opens again"
        assert wasted < 200, "of 2,000 pauses"

    def test_what_is_wasted_among_answers_that_are_used_is_no_more_than_the_share(self) -> None:
        budget = EarlyBudget(0.25, clock=lambda: 0.0)
        wasted = 0
        for _ in range(1_000):
            wasted += budget.open
            budget.ended("resumed" if budget.open else "used", 50)
        assert wasted / 1_000 == pytest.approx(0.25, abs=0.02)

    def test_a_refusal_closes_it_for_a_while(self) -> None:
        now = 100.0
        told: list[tuple[str, int]] = []
        budget = EarlyBudget(0.5, lambda outcome, tokens: told.append((outcome, tokens)), clock=lambda: now)
        budget.ended("refused", 0)
        assert budget.open, "a key's own limit is no load"
        budget.ended("refused", 0, overloaded=True)
        assert not budget.open
        now += OFF_S
        assert budget.open
        assert told == [("refused", 0)] * 2

    def test_a_share_of_nothing_closes_it(self) -> None:
        assert not EarlyBudget(0.0).open
