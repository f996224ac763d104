"""Reloads, gateways that go and come back, keys."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.gateway.conftest import ANSWER, LIMIT_S, Serve, fake_triton
from tests.gateway.page.conftest import Open, answers, ask
from tests.gateway.page.wire import Wire
from trimodal.client.transports.base import Request, Tensors, Timeouts
from trimodal.client.transports.fake import llm_outputs, scripted
from trimodal.gateway.keys import Key, add_key

pytestmark = pytest.mark.slow


# Leaves no room in the tab's storage.
FILL = """() => {
  let filled = 0;
  for (let size = 1 << 24; size >= 1; size /= 2) {
    try {
      sessionStorage.setItem("filler", "x".repeat(filled + size));
      filled += size;
    } catch {}
  }
}"""

BLOCKED = """for (const name of ["sessionStorage", "localStorage"]) {
  Object.defineProperty(window, name, { get() { throw new DOMException("", "SecurityError"); } });
}"""


async def stuck(request: Request) -> AsyncIterator[Tensors]:
    """Says two words and then nothing."""
    yield llm_outputs("Half an")
    yield llm_outputs(" answer", completion_tokens=2)
    await asyncio.sleep(LIMIT_S)
    yield llm_outputs("", "stop")


def test_a_reload_keeps_the_talk_and_marks_the_answer_that_was_cut(serve: Serve, open_page: Open) -> None:
    triton = fake_triton()
    page = open_page(serve(triton).url)
    ask(page, "one")
    expect(page.locator("details.timing")).to_be_visible()
    triton.functions["llm"] = stuck
    ask(page, "two")
    expect(page.locator(".answer .text").last).to_have_text("Half an answer")
    page.get_by_label("Your question").fill("a draft")
    page.reload()
    expect(page.locator(".mark.cut")).to_contain_text("Cut off when the page was loaded again.")
    assert answers(page) == [ANSWER, "Half an answer"]
    expect(page.locator("details.timing")).to_have_count(1)
    expect(page.get_by_label("Your question")).to_have_value("a draft")
    triton.functions["llm"] = scripted(ANSWER)
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("details.timing")).to_have_count(2)
    assert answers(page) == [ANSWER, ANSWER]


def test_a_talk_is_kept_without_its_oldest_parts_where_the_tab_has_no_room(
    serve: Serve, open_page: Open
) -> None:
    page = open_page(serve().url)
    finished = page.locator("details.timing")
    page.get_by_role("button", name="What is in this picture?").click()
    expect(finished).to_have_count(1)
    page.evaluate(FILL)
    ask(page, "one")
    expect(finished).to_have_count(2)
    page.reload()
    expect(page.locator(".question .hint")).to_have_text(["The picture did not fit into this tab's storage."])
    assert answers(page) == ["A seven.", "A seven."]
    page.evaluate(FILL)
    page.get_by_label("Your question").press_sequentially("two")
    page.keyboard.press("Enter")
    expect(finished).to_have_count(3)
    page.reload()
    hint = page.locator(".turn > .hint")
    expect(hint).to_contain_text("This tab's storage had no room for")
    assert answers(page)[-1] == ANSWER
    assert len(answers(page)) < 3
    expect(hint).to_have_count(1)
    page.reload()
    expect(hint).to_have_count(1)


def test_what_was_heard_stands_for_a_recording_that_the_tab_had_no_room_for(
    serve: Serve, open_page: Open
) -> None:
    served = serve()
    page = open_page(served.url)
    finished = page.locator("details.timing")
    page.get_by_role("button", name="A recording").click()
    expect(finished).to_have_count(1)
    page.evaluate(
        "for (const name in sessionStorage) if (/recording/.test(name)) sessionStorage.removeItem(name)"
    )
    page.reload()
    expect(page.locator(".question .hint")).to_have_text("The recording did not fit into this tab's storage.")
    ask(page, "and then?")
    expect(finished).to_have_count(2)
    said = json.loads(served.asked[-1].inputs["messages"][0])
    assert [one["content"] for one in said] == ["what is this", "A seven.", "and then?"]


def test_a_browser_that_lets_pages_keep_nothing(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().url)
    page.add_init_script(BLOCKED)
    page.reload()
    ask(page, "one")
    expect(page.locator("details.timing")).to_be_visible()
    page.locator("#theme-button").click()
    expect(page.locator("#theme-button")).to_have_text("Light theme")
    page.get_by_text("System prompt and temperature").click()
    page.get_by_label("System prompt", exact=True).fill("Be brief.")
    page.get_by_role("button", name="New chat").click()
    expect(page.locator(".turn")).to_have_count(0)


def test_a_gateway_that_goes_and_comes_back(serve: Serve, open_page: Open) -> None:
    triton = fake_triton(llm=stuck)
    wire = Wire(serve(triton).url)
    page = open_page(wire.url)
    expect(page.locator("#readiness")).to_have_text("Ready")
    ask(page, "one")
    expect(page.locator(".answer .text")).to_have_text("Half an answer")
    page.get_by_label("Your question").fill("a draft")
    wire.cut()
    expect(page.locator(".mark.cut")).to_contain_text("The connection was lost.")
    expect(page.locator("#readiness")).to_have_text("No gateway")
    expect(page.get_by_role("alert")).to_contain_text("what you typed is kept")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".mark.failed")).to_contain_text("The gateway does not answer.")
    expect(page.locator(".question").last).to_have_text("a draft")
    triton.functions["llm"] = scripted(ANSWER)
    wire.mend()
    expect(page.locator("#readiness")).to_have_text("Ready")
    expect(page.locator("#banner")).to_be_hidden()
    page.get_by_role("button", name="Try again").last.click()
    expect(page.locator("details.timing")).to_be_visible()
    assert answers(page) == ["Half an answer", ANSWER]
    wire.cut()


def test_a_model_server_that_goes_and_comes_back(serve: Serve, open_page: Open) -> None:
    triton = fake_triton()
    triton.reachable = False
    page = open_page(serve(triton).url)
    expect(page.locator("#readiness")).to_have_text("Not ready")
    expect(page.get_by_role("alert")).to_contain_text("The model server does not answer")
    triton.reachable = True
    expect(page.locator("#readiness")).to_have_text("Ready")
    expect(page.locator("#models li")).to_have_text(["assistant", "embedding", "llm", "speech", "vision"])


def test_a_model_that_goes_while_others_answer_is_named(serve: Serve, open_page: Open) -> None:
    triton, down = fake_triton(), {"speech"}

    async def ready(model: str, timeouts: Timeouts) -> bool:
        return model.partition("@")[0] not in down

    triton.ready = ready  # type: ignore[method-assign]
    page = open_page(serve(triton).url)
    expect(page.locator("#readiness")).to_have_text("Partly ready")
    expect(page.get_by_role("alert")).to_have_text("Not ready: speech. The other models answer.")
    ready_ones = page.locator("#models [data-state=ready]")
    expect(ready_ones).to_have_text(["assistant", "embedding", "llm", "vision"])
    ask(page, "one")
    expect(page.locator("details.timing")).to_be_visible()
    down.clear()
    expect(page.locator("#readiness")).to_have_text("Ready")
    expect(page.locator("#banner")).to_be_hidden()
    expect(ready_ones).to_have_count(5)


def test_a_no_to_the_question_for_a_key_is_taken(serve: Serve, open_page: Open, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    key = add_key(file, Key(name="page"))
    triton = fake_triton()
    page = open_page(serve(triton, keys=file).url)
    dialog = page.get_by_role("dialog")
    models = page.locator("#models")

    def decline(how: str) -> None:
        with page.expect_response("**/v1/models"):
            dialog.get_by_role("button", name=how).click()
        page.wait_for_timeout(100)
        expect(dialog).to_be_hidden()

    dialog.get_by_role("button", name="Cancel").click()
    triton.reachable = False
    expect(page.locator("#readiness")).to_have_text("Not ready")
    with page.expect_response("**/v1/models"):
        triton.reachable = True
    expect(page.locator("#readiness")).to_have_text("Ready")
    page.get_by_role("button", name="API key").click()
    decline("Cancel")
    page.get_by_role("button", name="API key").click()
    dialog.get_by_label("Key", exact=True).fill(key)
    dialog.get_by_role("button", name="Use").click()
    expect(models.get_by_role("listitem")).to_have_count(5)
    page.get_by_role("button", name="API key").click()
    decline("Forget")
    expect(models).to_have_text("Shown to callers with a key.")


def test_a_key_is_asked_for_and_kept_in_this_tab_only(serve: Serve, open_page: Open, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    key = add_key(file, Key(name="page"))
    page = open_page(serve(keys=file).url)
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("This gateway lets callers in by key.")  # the list of models was refused
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    ask(page, "one")
    expect(dialog).to_be_visible()
    dialog.get_by_label("Key", exact=True).fill("wrong")
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("not known")
    dialog.get_by_label("Key", exact=True).fill(key)
    dialog.get_by_role("button", name="Use").click()
    expect(page.locator("details.timing")).to_be_visible()
    expect(page.locator("#models li")).to_have_count(5)
    assert answers(page) == [ANSWER]
    assert page.evaluate("Object.keys(localStorage)") == []
    assert page.evaluate("document.cookie") == ""
    assert key not in page.content()
    page.reload()
    expect(page.locator("#models li")).to_have_count(5)
    page.get_by_role("button", name="API key").click()
    page.get_by_role("button", name="Forget").click()
    assert page.evaluate("Object.keys(sessionStorage).includes('trimodal.key')") is False
