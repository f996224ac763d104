"""A spoken conversation: the microphone's tone is speech, its silence ends a turn."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.gateway.conftest import ANSWER, Running, Serve, fake_triton
from tests.gateway.page.conftest import Open, ask
from tests.gateway.page.test_files import NO_MICROPHONE
from tests.gateway.realtime.conftest import _loud_is_speech  # noqa: F401
from trimodal.client.transports.base import Request, Tensors
from trimodal.client.transports.fake import FakeSpeech, scripted

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("_loud_is_speech")]
HEARD = FakeSpeech(("what", 0.1, 0.3), ("is", 0.4, 0.6), ("this?", 0.7, 0.9))
QUESTION = "what is this?"


def finished(request: Request) -> Tensors:
    return {"finished": np.array([[0.95]], np.float32)}


def converse(page: Page) -> None:
    page.get_by_role("button", name="Converse").click()
    expect(page.get_by_role("button", name="Converse", pressed=True)).to_be_visible()


def asked(served: Running) -> list[list[dict[str, Any]]]:
    """The chats that the language model was asked."""
    return [json.loads(one.inputs["messages"][0]) for one in served.asked if one.model == "llm"]


def test_turns_end_by_ear_and_are_answered(serve: Serve, open_page: Open) -> None:
    served = serve(fake_triton(turn=finished, speech=HEARD))
    page = open_page(served.url)
    expect(page.locator("#turn-ends")).to_have_text("None was begun yet.")
    converse(page)
    expect(page.locator("#turn-ends")).to_contain_text("semantic_vad")
    expect(page.locator("#hearing")).to_contain_text("what")
    expect(page.locator(".turn")).to_have_count(2)
    expect(page.locator(".answer .text").first).to_have_text(ANSWER)
    expect(page.locator(".question > p").first).to_have_text(QUESTION)
    expect(page.locator(".timing summary").first).to_contain_text("after speech")
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_role("button", name="Converse", pressed=False)).to_be_visible()
    expect(page.get_by_role("button", name="Send")).to_be_visible()
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
    llm = scripted("word " * 200, step=0.05)
    page = open_page(serve(fake_triton(turn=finished, speech=HEARD, llm=llm)).url)
    converse(page)
    expect(page.locator(".mark.interrupted").first).to_contain_text("Interrupted.")
    expect(page.locator(".turn")).to_have_count(2)
    page.keyboard.press("Escape")
    expect(page.locator(".mark.stopped, .mark.interrupted").nth(1)).to_be_visible()
    page.reload()
    expect(page.locator(".mark.interrupted").first).to_contain_text("Interrupted.")


def test_it_goes_on_from_the_talk_so_far_under_its_system_prompt(serve: Serve, open_page: Open) -> None:
    served = serve(fake_triton(turn=finished, speech=HEARD))
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
    page = open_page(serve(fake_triton(turn=finished, speech=HEARD)).url)
    converse(page)
    expect(page.locator(".turn")).to_have_count(1)
    page.get_by_role("button", name="New chat").click()
    expect(page.get_by_role("button", name="Converse", pressed=False)).to_be_visible()
    expect(page.locator(".turn")).to_have_count(0)


def test_without_a_microphone_it_does_not_begin(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().url)
    page.evaluate(NO_MICROPHONE)
    page.get_by_role("button", name="Converse").click()
    expect(page.locator("#notice")).to_have_text("There is no microphone.")
    expect(page.get_by_role("button", name="Converse", pressed=False)).to_be_visible()
