"""For everybody: keyboard alone, readable colours, small and large windows, both themes."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.gateway.conftest import ANSWER, Serve, fake_triton
from tests.gateway.page.conftest import Open, answers, ask
from trimodal.client.transports.fake import scripted

pytestmark = pytest.mark.slow

# Every text that is shown against what lies behind it, as WCAG counts contrast.
CONTRASTS = """() => {
  const parse = (color) => {
    const canvas = document.createElement("canvas").getContext("2d");
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const part = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const color = parse(getComputedStyle(one).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255];
  };
  const low = [];
  let count = 0;
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility({ visibilityProperty: true })) continue;
    count += 1;
    const [a, b] = [parse(getComputedStyle(element).color), behind(element)].map(light);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(`${texts.currentNode.data.trim()}: ${ratio.toFixed(2)}`);
  }
  return { count, low };
}"""
# Between an element's words and its edges.
GAPS = """(element) => {
  const range = document.createRange();
  range.selectNodeContents(element);
  const [words, box] = [range.getBoundingClientRect(), element.getBoundingClientRect()];
  return { left: words.left - box.left, right: box.right - words.right };
}"""
RIGHTMOST = """(shown) => {
  const edges = [...shown.querySelectorAll("button")].map((one) => one.getBoundingClientRect().right);
  return Math.max(0, ...edges);
}"""
FOCUS_IS_SHOWN = """() => {
  const focused = document.activeElement;
  if (focused === document.body) return true;
  const form = focused.closest("form");
  return getComputedStyle(focused).outlineStyle !== "none" || getComputedStyle(form).boxShadow !== "none";
}"""


def fill(page: Page) -> None:
    """A talk with an answer, its waterfall, a picture and an error."""
    ask(page, "What is the capital of Japan?")
    expect(page.locator("details.timing")).to_be_visible()
    page.locator("details.timing summary").click()
    page.evaluate("document.getElementById('banner').hidden = false")
    page.evaluate("document.getElementById('banner').textContent = 'The gateway does not answer.'")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_can_be_read(serve: Serve, open_page: Open, theme: str) -> None:
    text = f"{ANSWER} `code`\n\n```\nblock\n```"
    page = open_page(serve(fake_triton(llm=scripted(text))).url, color_scheme=theme)
    fill(page)
    page.evaluate("document.getElementById('captions-tentative').textContent = 'perhaps'")
    expect(page.locator("#captions-tentative")).to_be_visible()
    found = page.evaluate(CONTRASTS)
    assert found["count"] > 40
    assert found["low"] == []


@pytest.mark.parametrize("width", [360, 768, 1440])
def test_every_width(serve: Serve, open_page: Open, width: int) -> None:
    long = "unbreakable" * 40 + "\n\n```\n" + "x = 1; " * 60 + "\n```"
    page = open_page(serve(fake_triton(llm=scripted(long))).url, viewport={"width": width, "height": 740})
    fill(page)
    for view in ("Status", "Captions", "Chat"):
        button = page.get_by_role("navigation").get_by_role("button", name=view)
        if width < 1024:
            button.click()
        shown = page.locator(f"#{view.lower()}")
        expect(shown).to_be_visible()
        expect(page.locator("#chat")).to_be_visible(visible=width >= 1024 or view == "Chat")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert shown.evaluate(RIGHTMOST) <= width
    expect(page.get_by_role("button", name="Send")).to_be_in_viewport()
    assert page.get_by_role("heading", name="trimodal").evaluate("e => e.offsetHeight") < 40  # one line
    page.evaluate("document.querySelector('#readiness span').textContent = 'No gateway'")
    tools, title = (page.locator(one).evaluate("e => e.offsetTop") for one in (".tools", "h1"))
    assert abs(tools - title) < 20  # beside it


def test_the_keyboard_alone(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().url)
    expect(page.locator("#readiness")).to_have_text("Ready")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the question")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.type("one")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("line")
    page.keyboard.press("Enter")
    expect(page.locator("details.timing")).to_be_visible()
    assert answers(page) == [ANSWER]
    expect(page.locator(".question")).to_have_text("one\nline")
    expect(page.get_by_label("Your question")).to_be_focused()
    reached = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        assert page.evaluate(FOCUS_IS_SHOWN)
    assert {
        "new-talk", "key-button", "theme-button", "scroller", "SUMMARY", "question", "picture-button",
        "talk-button", "send-button", "captions-button",
    } <= reached  # fmt: skip


def test_the_theme_is_chosen_and_kept(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().url, color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    white = page.evaluate(ground)
    for name in ("Light theme", "Dark theme"):
        page.locator("#theme-button").click()
        expect(page.locator("#theme-button")).to_have_text(name)
    dark = page.evaluate(ground)
    assert dark != white
    page.reload()
    expect(page.locator("#theme-button")).to_have_text("Dark theme")
    assert page.evaluate(ground) == dark
    page.locator("#theme-button").click()
    assert page.evaluate(ground) == white
    assert page.evaluate("Object.keys(localStorage)") == []


def test_a_small_window_begins_at_the_top_and_ends_at_the_newest(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().url, viewport={"width": 640, "height": 425})
    first = page.get_by_role("heading", name="Ask in words")
    expect(page.locator("#readiness")).to_have_text("Ready")
    expect(first).to_be_in_viewport(ratio=1)
    for _ in range(4):
        ask(page, "What is the capital of Japan?")
        expect(page.get_by_role("button", name="Send")).to_be_visible()
    expect(page.locator("details.timing").last).to_be_in_viewport()
    page.get_by_role("button", name="New chat").click()
    expect(first).to_be_in_viewport(ratio=1)


def test_a_window_at_400_percent_keeps_room_for_answers(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().url, viewport={"width": 320, "height": 256})
    assert page.locator("#scroller").evaluate("e => e.clientHeight") > 120
    page.get_by_role("button", name="Send").scroll_into_view_if_needed()
    expect(page.get_by_role("button", name="Send")).to_be_in_viewport(ratio=1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


def test_words_from_right_to_left(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(fake_triton(llm=scripted("\u0645\u0631\u062d\u0628\u0627 abc."))).url)
    ask(page, "\u0645\u0631\u062d\u0628\u0627!")
    expect(page.locator("details.timing")).to_be_visible()
    for place in (".question > p", ".answer .text p"):
        gaps = page.locator(place).first.evaluate(GAPS)
        assert gaps["left"] >= gaps["right"], place
        assert gaps["right"] < 1, place


def test_forced_colours_still_tell_what_is_ready(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().url, forced_colors="active")
    ask(page, "What is the capital of Japan?")
    expect(page.locator("#last-request .bar").first).to_be_attached()
    expect(page.locator("#models li")).to_have_count(5)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    bars = page.locator("#last-request .bar").evaluate_all(
        "all => all.map(e => getComputedStyle(e).backgroundColor)"
    )
    dots = page.locator("#models li").evaluate_all(
        "all => all.map(e => getComputedStyle(e, '::before').backgroundColor)"
    )
    assert ground not in bars
    assert ground not in dots
    assert "rgba(0, 0, 0, 0)" not in [*bars, *dots]
