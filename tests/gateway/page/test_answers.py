"""Answers: drawn with lists, tables and code, copied, continued; and what they are asked with."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.gateway.conftest import Serve, fake_triton
from tests.gateway.page.conftest import Open, ask
from tests.gateway.page.test_chat import endless, finished, sent_messages
from trimodal.client.transports.fake import scripted

CODE = "def f(x):\n    return x < 1  # **not bold**"
RICH = f"""# A heading

Some **bold words**, *leaning* ones, `code` and 2 * 3 * 4.
A second line.

- first
- second with `code`
  1. inner **one**
  2. inner two
- third

3. three
4. four

| name | what \\| how |
|:-----|-----:|
| a | **1** |
| b | <b>2</b> |

> quoted
> - in a list

---

```python
{CODE}
```
After."""


def shown(serve: Serve, open_page: Open, text: str, **window: object) -> Page:
    page = open_page(serve(fake_triton(llm=scripted(text))).url, **window)
    ask(page, "one")
    finished(page)
    return page


def test_lists_tables_and_code_are_drawn(serve: Serve, open_page: Open) -> None:
    page = shown(serve, open_page, RICH)
    text = page.locator(".answer .text")
    kinds = text.evaluate("element => [...element.children].map((one) => one.className || one.localName)")
    assert kinds == ["h4", "p", "ul", "ol", "table", "blockquote", "hr", "block", "p"]
    expect(text.locator("> ul > li")).to_have_count(3)
    expect(text.locator("> ul > li ol > li")).to_have_text(["inner one", "inner two"])
    assert text.locator("> ol").get_attribute("start") == "3"
    expect(text.locator("strong")).to_have_text(["bold words", "one", "1"])
    expect(text.locator("em")).to_have_text(["leaning"])
    expect(text.locator("th")).to_have_text(["name", "what | how"])
    expect(text.locator("td")).to_have_text(["a", "1", "b", "<b>2</b>"])
    expect(text.locator("blockquote li")).to_have_text(["in a list"])
    assert text.locator("pre code").text_content() == CODE
    assert "2 * 3 * 4" in text.locator("> p").first.inner_text()


def test_a_table_and_a_fence_that_are_still_coming_are_no_fault(serve: Serve, open_page: Open) -> None:
    page = shown(serve, open_page, "| a |\n\n```\nhalf")
    expect(page.locator(".answer .text > p")).to_have_text(["| a |"])
    expect(page.locator(".answer pre")).to_have_text(["half"])


CLOSE = """Prices:
| a | b |
|---|---|
| 1 | 2 |

Use ```print(1)``` here:

````
```
inner
```
````

It prints 1."""


def test_fences_end_where_they_should_and_a_table_needs_no_empty_line(serve: Serve, open_page: Open) -> None:
    text = shown(serve, open_page, CLOSE).locator(".answer .text")
    expect(text.locator("> p")).to_have_text(["Prices:", "Use print(1) here:", "It prints 1."])
    expect(text.locator("td")).to_have_text(["1", "2"])
    expect(text.locator("p code")).to_have_text(["print(1)"])
    assert text.locator("pre code").text_content() == "```\ninner\n```"


TILDES = """- ~~~python
  a ~~~ b
  ```
  ~~~~
- ~~struck~~

~~~ `x` ~~~
~~
```
half"""


def test_tildes_fence_code_too(serve: Serve, open_page: Open) -> None:
    text = shown(serve, open_page, TILDES).locator(".answer .text")
    codes = text.locator("pre code").evaluate_all("all => all.map((one) => one.textContent)")
    assert codes == ["a ~~~ b\n```", "~~\n```\nhalf"]
    expect(text.locator("> ul > li").last).to_have_text("~~struck~~")


STEPS = """1. Make it:
   ```python
   if x:
       y()
   ```
   Then look.
2. Run it:

   ```
no indent
   ```

   - at once
	- or later

3. ```
   inside
   ```
- other

  a second paragraph
after"""


def test_an_item_holds_its_code_and_paragraphs(serve: Serve, open_page: Open) -> None:
    text = shown(serve, open_page, STEPS).locator(".answer .text")
    kinds = text.evaluate("element => [...element.children].map((one) => one.localName)")
    assert kinds == ["ol", "ul", "p"]
    expect(text.locator("> ol > li")).to_have_count(3)
    codes = text.locator("> ol > li > .block code").evaluate_all("all => all.map((one) => one.textContent)")
    assert codes == ["if x:\n    y()", "no indent", "inside"]
    expect(text.locator("> ol > li").first).to_contain_text("Then look.")
    expect(text.locator("> ol > li > ul > li")).to_have_text(["at once", "or later"])
    expect(text.locator("> ul > li > p")).to_have_text(["a second paragraph"])
    expect(text.locator("> p")).to_have_text(["after"])


def test_lists_within_lists_end_somewhere(serve: Serve, open_page: Open) -> None:
    page = shown(serve, open_page, "- " * 10_000 + "x\n" + "\n".join(" " * n + "- x" for n in range(300)))
    assert page.locator(".answer .text :is(ul ul ul ul ul ul ul ul)").count() > 0
    assert page.locator(".answer .text :is(ul ul ul ul ul ul ul ul ul)").count() == 0


def test_answers_and_code_are_copied_as_they_were_written(serve: Serve, open_page: Open) -> None:
    page = shown(serve, open_page, RICH, permissions=["clipboard-read", "clipboard-write"])
    copied = "navigator.clipboard.readText()"
    page.locator(".block .copy").click()
    expect(page.locator(".block .copy")).to_have_text("Copied")
    assert page.evaluate(copied) == CODE
    page.locator(".end .copy").click()
    expect(page.locator(".end .copy")).to_have_text("Copied")
    assert page.evaluate(copied) == RICH


def test_an_answer_that_was_cut_off_goes_on_where_it_ended(serve: Serve, open_page: Open) -> None:
    served = serve(fake_triton(llm=endless))
    page = open_page(served.url)
    ask(page, "one")
    expect(page.locator(".answer .text")).to_contain_text("word3")
    page.get_by_role("button", name="Stop").click()
    begun = page.evaluate("JSON.parse(sessionStorage.getItem('trimodal.turns'))[0].answer.text")
    served.triton.functions["llm"] = scripted("and the rest.", finish_reason="length")
    page.get_by_role("button", name="Continue").click()
    finished(page)
    assert page.locator(".answer .text").inner_text().endswith("and the rest.")
    assert sent_messages(served.triton)[-1] == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": begun},
    ]
    expect(page.get_by_role("button", name="Continue")).to_be_visible()  # its tokens were too few


def test_a_whole_answer_has_nothing_to_continue(serve: Serve, open_page: Open) -> None:
    page = shown(serve, open_page, "Paris.")
    expect(page.get_by_role("button", name="Continue")).to_have_count(0)


def test_system_prompt_and_temperature_are_asked_with_and_kept(serve: Serve, open_page: Open) -> None:
    served = serve(fake_triton(llm=scripted("Paris.")))
    page = open_page(served.url)
    page.get_by_text("System prompt and temperature").click()
    page.get_by_label("System prompt", exact=True).fill("Be brief.")
    page.get_by_label("Temperature").fill("0.25")
    for turn in (1, 2):
        ask(page, "one")
        finished(page, turn)
        assert sent_messages(served.triton)[-1][0] == {"role": "system", "content": "Be brief."}
        assert served.asked[-1].inputs["temperature"].tolist() == [0.25]
        page.reload()
    page.get_by_text("System prompt and temperature").click()
    page.get_by_label("Temperature").fill("7")
    page.get_by_label("System prompt", exact=True).fill("")
    ask(page, "one")
    finished(page, 3)
    assert sent_messages(served.triton)[-1][0]["role"] == "user"
    assert "temperature" not in served.asked[-1].inputs, "what is no temperature is not sent"


def test_quotes_within_quotes_end_somewhere(serve: Serve, open_page: Open) -> None:
    page = shown(serve, open_page, ">" * 30_000)
    expect(page.locator(".answer .text blockquote")).to_have_count(8)
