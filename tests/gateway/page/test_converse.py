"""A spoken conversation: the microphone's tone is speech, its silence ends a turn."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from tests.gateway.conftest import ANSWER, Running, Serve, assistant, continuing, fake_triton
from tests.gateway.page.conftest import Open, ask
from tests.gateway.page.test_files import NO_MICROPHONE
from tests.gateway.realtime.conftest import _loud_is_speech  # noqa: F401
from trimodal.client.transports.base import Request, Tensors
from trimodal.client.transports.fake import FakeSpeech, scripted
from trimodal.client.transports.tensors import strings
from trimodal.gateway.keys import Key, add_key

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("_loud_is_speech")]
HEARD = FakeSpeech(("what", 0.1, 0.3), ("is", 0.4, 0.6), ("this?", 0.7, 0.9))
QUESTION = "what is this?"
SPEAK = "Speak. Speaking again interrupts the answer."
BUSY = "Wait for the answer, or stop it."
HEARD_EVENT = "conversation.item.input_audio_transcription"
# The browser asks the user, who gives it late: `give()`.
ASKED_FOR_THE_MICROPHONE = """() => {
  const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  navigator.mediaDevices.getUserMedia = (wanted) => new Promise((resolve) => {
    window.give = async () => resolve(window.given = await open(wanted));
  });
}"""


class ScriptedGateway:
    """Plays the gateway's part of a conversation, event by event."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.sent: list[dict[str, Any]] = []
        page.route_web_socket(re.compile("/v1/realtime"), self._open)
        page.reload()

    def begin(self) -> None:
        converse(self.page)
        expect(self.page.locator("#turn-ends")).to_contain_text("semantic_vad")

    def tell(self, kind: str, **fields: object) -> None:
        self.socket.send(json.dumps({"type": kind, **fields}))

    def start(self, item: str) -> None:
        self.tell("input_audio_buffer.speech_started", item_id=item, audio_start_ms=0)

    def stop(self, item: str) -> None:
        self.tell("input_audio_buffer.speech_stopped", item_id=item, audio_end_ms=100)

    def hear(self, item: str, words: str) -> None:
        self.tell(f"{HEARD_EVENT}.completed", item_id=item, transcript=words)

    def say(self, item: str, words: str) -> None:
        """Hears a whole turn."""
        self.start(item)
        self.stop(item)
        self.hear(item, words)

    def answer(self, *meanwhile: tuple[str, str]) -> None:
        """Answers, and hears these turns while it does."""
        self.tell("response.created")
        self.tell("response.output_text.delta", delta="Yes.")
        for item, words in meanwhile:
            self.say(item, words)
        self.tell("response.done", response={"status": "completed"})

    def _open(self, socket: WebSocketRoute) -> None:
        self.socket = socket
        socket.on_message(self._take)
        self.tell("session.created")

    def _take(self, message: str | bytes) -> None:
        self.sent.append(json.loads(message))
        if self.sent[-1]["type"] == "session.update":
            self.tell("session.updated", session={})


def end(page: Page) -> None:
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_role("button", name="Converse", pressed=False)).to_be_visible()
    expect(page.get_by_role("button", name="Send")).to_be_visible()


def finished(request: Request) -> Tensors:
    return {"finished": np.array([[0.95]], np.float32)}


def converse(page: Page) -> None:
    page.get_by_role("button", name="Converse").click()
    expect(page.get_by_role("button", name="Converse", pressed=True)).to_be_visible()


def asked(served: Running) -> list[list[dict[str, Any]]]:
    """The chats that the language model was asked."""
    llm = [one.inputs for one in served.asked if one.model == "llm"]
    return [json.loads(inputs["messages"][0]) for inputs in llm if "messages" in inputs]


def test_turns_end_by_ear_and_are_answered(serve: Serve, open_page: Open) -> None:
    served = serve(fake_triton(turn=finished, speech=HEARD, llm=continuing(".")))
    page = open_page(served.url)
    expect(page.locator("#turn-ends")).to_have_text("None was begun yet.")
    converse(page)
    expect(page.locator("#turn-ends")).to_contain_text("semantic_vad")
    expect(page.locator("#hearing")).to_contain_text("what")
    expect(page.locator(".turn").nth(1)).to_be_visible()
    expect(page.locator(".answer .text").first).to_have_text(ANSWER)
    expect(page.locator(".question > p").first).to_have_text(QUESTION)
    expect(page.locator(".timing summary").first).to_contain_text("after speech")
    end(page)
    expect(page.locator("#hearing")).to_be_hidden()
    assert any(request.model == "turn" for request in served.triton.requests)
    expect(page.locator("#figures-count")).to_have_text("none yet")  # its times begin with another clock


def test_where_no_model_hears_the_end_a_silence_is_it_and_the_panel_says_so(
    serve: Serve, open_page: Open
) -> None:
    page = open_page(serve(fake_triton(speech=HEARD)).url)
    converse(page)
    expect(page.locator("#turn-ends")).to_contain_text("the model 'turn' is not served here")
    expect(page.locator(".answer .text").first).to_have_text(ANSWER)


def test_speaking_interrupts_an_answer_which_is_marked(serve: Serve, open_page: Open) -> None:
    llm = continuing(".", scripted("word " * 200, step=0.05))
    page = open_page(serve(fake_triton(turn=finished, speech=HEARD, llm=llm)).url)
    converse(page)
    expect(page.locator(".mark.interrupted").first).to_contain_text("Interrupted.")
    expect(page.locator(".turn").nth(1)).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".mark.stopped, .mark.interrupted").nth(1)).to_be_visible()
    page.reload()
    expect(page.locator(".mark.interrupted").first).to_contain_text("Interrupted.")


def test_it_goes_on_from_the_talk_so_far_under_its_system_prompt(serve: Serve, open_page: Open) -> None:
    served = serve(fake_triton(turn=finished, speech=HEARD, llm=continuing(".")))
    page = open_page(served.url)
    page.get_by_text("System prompt and temperature").click()
    page.get_by_label("System prompt").fill("Be brief.")
    ask(page, "typed")
    expect(page.locator(".answer .text").first).to_have_text(ANSWER)
    converse(page)
    expect(page.locator(".answer .text").nth(1)).to_have_text(ANSWER)
    roles = ["system", "user", "assistant", "user"]
    chat = next(chat for chat in asked(served) if [one["role"] for one in chat] == roles)
    assert [one["content"] for one in chat] == ["Be brief.", "typed", ANSWER, QUESTION]


def test_a_new_chat_ends_it(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(fake_triton(turn=finished, speech=HEARD, llm=continuing("."))).url)
    converse(page)
    expect(page.locator(".turn").first).to_be_visible()
    page.get_by_role("button", name="New chat").click()
    expect(page.get_by_role("button", name="Converse", pressed=False)).to_be_visible()
    expect(page.locator(".turn")).to_have_count(0)


def test_without_a_microphone_it_does_not_begin(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().url)
    page.evaluate(NO_MICROPHONE)
    page.get_by_role("button", name="Converse").click()
    expect(page.locator("#notice")).to_have_text("There is no microphone.")
    expect(page.get_by_role("button", name="Converse", pressed=False)).to_be_visible()


def test_it_ends_while_the_browser_asks_for_the_microphone(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().url)
    page.evaluate(ASKED_FOR_THE_MICROPHONE)
    converse(page)
    page.wait_for_function("() => window.give")
    end(page)
    page.evaluate("give()")
    page.wait_for_function("() => window.given?.getTracks()[0].readyState === 'ended'")


def test_nothing_else_is_asked_while_it_goes_on(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().url)
    ScriptedGateway(page).begin()
    for name in ("What is in this picture?", "A recording"):
        expect(page.locator("#notice")).to_have_text(SPEAK)
        page.get_by_role("button", name=name).click()
        expect(page.locator("#notice")).to_have_text(BUSY)
        page.evaluate("words => { document.getElementById('notice').textContent = words; }", SPEAK)
    expect(page.locator(".turn")).to_have_count(0)
    end(page)


def test_what_goes_wrong_is_told_until_the_next_turn(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().url)
    gateway, notice = ScriptedGateway(page), page.locator("#notice")
    gateway.begin()
    gateway.start("a")
    gateway.tell(f"{HEARD_EVENT}.failed", item_id="a", error={"message": "no room"})
    gateway.tell("error", error={"message": "no room", "event_id": None})
    expect(notice).to_have_text("no room")
    gateway.start("b")
    expect(notice).to_have_text(SPEAK)
    gateway.socket.close()
    expect(notice).to_have_text("The connection was lost.")
    expect(page.get_by_role("button", name="Converse", pressed=False)).to_be_visible()


@pytest.mark.parametrize(
    ("allowed", "told"),
    [
        (Key(name="one", audio_seconds_per_minute=1), "audio seconds a minute"),
        (Key(name="one", models=("llm",)), "speech"),
        (Key(name="one", models=("speech",)), "the key may not use the model"),
    ],
    ids=["spent", "speech", "llm"],
)
def test_where_its_sound_is_refused_it_ends_and_says_why(
    serve: Serve, open_page: Open, tmp_path: Path, allowed: Key, told: str
) -> None:
    file = tmp_path / "keys.toml"
    key = add_key(file, allowed)
    page = open_page(serve(fake_triton(turn=finished, speech=HEARD, llm=continuing(".")), keys=file).url)
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Key", exact=True).fill(key)
    dialog.get_by_role("button", name="Use").click()
    page.get_by_role("button", name="Converse").click()
    expect(page.locator("#notice")).to_contain_text(told)
    expect(page.get_by_role("button", name="Converse", pressed=False)).to_be_visible()


def test_a_listeners_word_is_no_question_and_none_of_the_next(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().url)
    gateway = ScriptedGateway(page)
    gateway.begin()
    gateway.say("a", "What is this?")
    gateway.answer(("b", "Mhm."))
    gateway.say("c", "And that?")
    gateway.answer()
    expect(page.locator(".question > p")).to_have_text(["What is this?", "And that?"])
    expect(page.locator("#hearing")).to_be_hidden()


@pytest.mark.parametrize("late", ["a", "b"])
def test_what_is_heard_before_the_first_text_belongs_to_its_question(
    serve: Serve, open_page: Open, late: str
) -> None:
    page = open_page(serve().url)
    gateway, words = ScriptedGateway(page), {"a": "What is this?", "b": "On the left."}
    gateway.begin()
    for item in words:
        gateway.start(item)
        gateway.stop(item)
    (early,) = words.keys() - {late}
    gateway.hear(early, words[early])
    gateway.tell("response.created")
    expect(page.locator(".question > p")).to_have_text([words[early]])
    gateway.hear(late, words[late])
    gateway.tell("response.output_text.delta", delta="A seven.")
    gateway.tell("response.done", response={"status": "completed"})
    gateway.say("c", "Why?")
    gateway.answer()
    expect(page.locator(".question > p")).to_have_text(["What is this? On the left.", "Why?"])


def test_a_question_in_which_no_words_were_heard_is_named_a_recording(serve: Serve, open_page: Open) -> None:
    async def deaf(request):  # type: ignore[no-untyped-def]
        async for outputs in assistant(request):
            yield {**outputs, "text_output": strings([b""])} if outputs["stage"][0] == b"heard" else outputs

    page = open_page(serve(fake_triton(assistant=deaf)).url)
    gateway = ScriptedGateway(page)
    page.get_by_role("button", name="A recording").click()
    expect(page.locator(".answer .text")).to_have_text("A seven.")
    gateway.begin()
    texts = [one["item"]["content"][0]["text"] for one in gateway.sent if "item" in one]
    assert texts == ["(a recording)", "A seven."]
