"""Typed chat: answers that stream, figures under them, stopping, several turns."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.doubles.waiting import wait_until
from tests.gateway.conftest import ANSWER, LIMIT_S, Serve, fails, fake_triton, with_note
from tests.gateway.page.conftest import Open, answers, ask
from trimodal.client.transports.base import Request, Tensors
from trimodal.client.transports.fake import FakeTransport, llm_outputs, scripted
from trimodal.errors import InvalidArgument

ROOT = Path(__file__).resolve().parents[3]


async def endless(request: Request) -> AsyncIterator[Tensors]:
    """Never comes to an end by itself."""
    count = 0
    while True:
        count += 1
        yield llm_outputs(f"word{count} ", completion_tokens=count)
        await asyncio.sleep(0.01)


def sent_messages(triton: FakeTransport) -> list[list[dict[str, str]]]:
    asked = [request.inputs for request in triton.requests if "messages" in request.inputs]  # no probes
    return [json.loads(inputs["messages"][0]) for inputs in asked]


def finished(page: Page, count: int = 1) -> None:
    expect(page.locator("details.timing")).to_have_count(count)


def test_an_answer_with_its_figures(serve: Serve, open_page: Open) -> None:
    """Its last word comes late: tokens that come together have no rate."""
    go_on = threading.Event()

    async def halting(request: Request) -> AsyncIterator[Tensors]:
        async for outputs in scripted(ANSWER)(request):
            while outputs["finish_reason"][0] and not go_on.is_set():
                await asyncio.sleep(0.005)
            yield outputs

    served = serve(fake_triton(llm=halting))
    page = open_page(served.url)
    ask(page, "What is the capital of Japan?")
    expect(page.locator(".answer .text")).to_contain_text("An answer")
    page.wait_for_timeout(100)
    go_on.set()
    finished(page)
    assert answers(page) == [ANSWER]
    expect(page.locator(".question")).to_have_text("What is the capital of Japan?")
    line = page.locator("details.timing summary")
    expect(line).to_contain_text("TTFT")
    expect(line).to_contain_text(f"{len(ANSWER.split())} tokens")
    expect(line).to_contain_text("tokens/s")
    expect(line).to_contain_text("not cached")
    assert sent_messages(served.triton) == [[{"role": "user", "content": "What is the capital of Japan?"}]]
    expect(page.get_by_label("Your question")).to_have_value("")


def test_the_parts_of_the_time_add_up(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(fake_triton(llm=scripted(ANSWER, step=0.01))).url)
    ask(page, "one")
    finished(page)
    (turn,) = json.loads(page.evaluate("sessionStorage.getItem('trimodal.turns')"))
    timing = turn["answer"]["timing"]
    parts = dict(timing["parts"])
    assert list(parts) == ["network", "queue", "first token", "tokens"]
    assert all(part >= 0 for part in parts.values())
    assert abs(sum(parts.values()) - timing["total"]) < 0.01
    assert abs(timing["ttft"] - parts["network"] - turn["answer"]["note"]["ttft_ms"]) < 0.01
    assert parts["tokens"] > 10 * (len(ANSWER.split()) - 2)
    page.locator("details.timing summary").click()
    shown = page.locator("details .waterfall").get_by_role("rowheader").all_inner_texts()
    assert shown == [*parts, "total"]
    expect(page.locator("#last-request .waterfall")).to_be_visible()
    expect(page.locator("#figures-count")).to_have_text("of 1")


def test_a_mark_where_the_cache_answered(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(fake_triton(llm=with_note("A kept answer.", cache=b"semantic"))).url)
    ask(page, "one")
    expect(page.locator("details.timing summary .hit")).to_have_text("semantic cache hit")


def test_a_talk_that_was_too_long_goes_on_and_says_so(serve: Serve, open_page: Open) -> None:
    """Refused as talks once were, then asked again."""
    triton = fake_triton(llm=fails(InvalidArgument("the prompt has 2421 tokens: max_prompt_tokens is 2048")))
    page = open_page(serve(triton).url)
    ask(page, "one")
    expect(page.locator(".mark.failed")).to_contain_text("2421 tokens")
    triton.functions["llm"] = with_note("Once more.", b'{"messages": 4, "tokens": 812}')
    page.get_by_role("button", name="Try again").click()
    finished(page)
    assert answers(page) == ["Once more."]
    asked = [one.inputs for one in triton.requests if "messages" in one.inputs]
    assert asked[-1]["truncation"].tolist() == [b"auto"]
    expect(page.locator(".trimmed")).to_contain_text("its oldest 4 messages were left out")


def keep_turns(page: Page, count: int, answer: str) -> None:
    """Loads the page with so many turns from before."""
    turns = [
        {"question": {"text": f"q{n}"}, "answer": {"text": answer, "state": "done"}} for n in range(count)
    ]
    page.add_init_script(f"sessionStorage.setItem('trimodal.turns', {json.dumps(json.dumps(turns))})")
    page.reload()


def test_a_talk_beyond_all_bounds_is_sent_without_its_oldest_turns(serve: Serve, open_page: Open) -> None:
    served = serve()
    page = open_page(served.url)
    keep_turns(page, 600, "é" * 400)
    ask(page, "and now?")
    finished(page)
    (sent,) = sent_messages(served.triton)
    left_out = 1201 - len(sent)
    assert sent[-1]["content"] == "and now?"
    assert len(json.dumps(sent, ensure_ascii=False).encode()) < 262_144
    assert left_out % 32 == 0, "in steps of 16 turns"
    assert sent[0]["content"] == f"q{left_out // 2}"
    expect(page.locator(".trimmed")).to_contain_text(f"its oldest {left_out} messages were left out")


def test_a_long_question_leaves_older_turns_out(serve: Serve, open_page: Open) -> None:
    served = serve()
    page = open_page(served.url)
    keep_turns(page, 40, "x" * 3000)
    ask(page, "y" * 150_000)
    finished(page)
    ask(page, "z" * 210_000)  # alone it is beyond all bounds: the model says so
    finished(page, 2)
    first, second = sent_messages(served.triton)
    assert len(json.dumps(first)) < 210_000
    assert len(first) == 1 + 2 * (40 - 32)
    assert [len(one["content"]) for one in second] == [210_000]


def test_stop_cancels_the_generation(serve: Serve, open_page: Open) -> None:
    served = serve(fake_triton(llm=endless))
    page = open_page(served.url)
    ask(page, "count")
    expect(page.locator(".answer .text")).to_contain_text("word3")
    page.get_by_role("button", name="Stop").click()
    wait_until(lambda: served.triton.cancelled, "the generation is cancelled")
    expect(page.locator(".mark.stopped")).to_contain_text("Stopped.")
    text = answers(page)[0]
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    assert answers(page) == [text]


def test_stop_before_the_first_token(serve: Serve, open_page: Open) -> None:
    async def slow(request: Request) -> AsyncIterator[Tensors]:
        await asyncio.sleep(LIMIT_S)
        yield llm_outputs("late", "stop")

    served = serve(fake_triton(llm=slow))
    page = open_page(served.url)
    ask(page, "count")
    expect(page.locator(".answer .waiting")).to_be_visible()
    page.keyboard.press("Escape")
    wait_until(lambda: served.triton.cancelled, "the generation is cancelled")
    expect(page.locator(".mark.stopped")).to_be_visible()


def test_the_talk_goes_on_and_a_new_one_begins_empty(serve: Serve, open_page: Open) -> None:
    served = serve()
    page = open_page(served.url)
    for count, question in enumerate(("one", "two"), 1):
        ask(page, question)
        finished(page, count)
    page.get_by_role("button", name="New chat").click()
    expect(page.locator(".turn")).to_have_count(0)
    ask(page, "three")
    finished(page)
    one, two, three = ({"role": "user", "content": text} for text in ("one", "two", "three"))
    assert sent_messages(served.triton) == [
        [one], [one, {"role": "assistant", "content": ANSWER}, two], [three],
    ]  # fmt: skip


def test_a_reader_hears_the_answer_once(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(fake_triton(llm=scripted(ANSWER, step=0.01))).url)
    ask(page, "one")
    finished(page)
    expect(page.locator("#announcement")).to_have_text(ANSWER)
    assert page.locator("#announcement").get_attribute("role") == "status"
    assert page.locator("#turns").evaluate("e => e.closest('[aria-live], [role=log]')") is None
    assert page.locator(".answer").get_attribute("aria-busy") == "false"


def test_the_example_for_pages_of_your_own_shows_one_answer_at_a_time(serve: Serve, open_page: Open) -> None:
    served = serve(fake_triton(llm=endless))
    page = open_page(served.url)
    example = (ROOT / "clients" / "browser_chat.html").read_text()
    page.route(re.compile("/own.html"), lambda route: route.fulfill(body=example, content_type="text/html"))
    page.goto(f"{served.url}/own.html?gateway={served.url}")
    page.get_by_role("button", name="Ask").click()
    expect(page.locator("#answer")).to_contain_text("word3")
    served.triton.functions["llm"] = scripted("Another one.")
    page.get_by_role("button", name="Ask").click()
    wait_until(lambda: served.triton.cancelled, "the first generation is cancelled")
    expect(page.locator("#answer")).to_have_text("Another one.")
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()
    served.triton.functions["llm"] = endless
    page.get_by_role("button", name="Ask").click()
    expect(page.locator("#answer")).to_contain_text("word3")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()
    assert "abort" not in page.locator("#answer").inner_text()
