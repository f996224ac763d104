"""Nothing that a user, a file's name, a model or a server says becomes markup or runs.

`open_page` fails a test in which a script ran into an error, a dialog opened or the policy was violated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from playwright.sync_api import Page, expect

from tests.gateway.conftest import Serve, assistant, fake_triton
from tests.gateway.page.conftest import Open, answers, ask
from trimodal.client.transports.base import Request, Tensors
from trimodal.client.transports.fake import scripted
from trimodal.client.transports.tensors import strings
from trimodal.errors import InvalidArgument

ATTACK = (
    "<script>alert(1)</script><img src=x onerror=alert(2)><svg onload=alert(3)>"
    "<a href='javascript:alert(4)'>x</a><iframe srcdoc='<script>alert(5)</script>'></iframe>"
)
FENCED = f"`{ATTACK}`\n\n```\n{ATTACK}\n```"
PICTURE = {"name": f"{ATTACK}.png", "mimeType": "image/png", "buffer": b"no picture"}


def nothing_became_markup(page: Page) -> None:
    markup = "script, iframe, svg, a, img[src='x'], [onerror], [onload]"
    shown = page.locator("#turns, #attachments, #banner, #announcement, #notice")
    assert shown.locator(markup).count() == 0


def test_in_questions_answers_and_after_a_reload(serve: Serve, open_page: Open) -> None:
    page = open_page(serve(fake_triton(llm=scripted(f"{ATTACK}\n\n{FENCED}"))).url)
    ask(page, ATTACK)
    expect(page.locator("details.timing")).to_be_visible()
    for _ in range(2):
        expect(page.locator(".question")).to_have_text(ATTACK)
        assert answers(page)[0].count(ATTACK) == 3
        nothing_became_markup(page)
        page.reload()


def test_in_names_of_files_labels_and_what_was_heard(serve: Serve, open_page: Open) -> None:
    async def hostile(request: Request) -> AsyncIterator[Tensors]:
        yield {"stage": strings([b"heard"]), "text_output": strings([ATTACK.encode()])}
        async for outputs in assistant(request):
            if "labels" in outputs:
                outputs["labels"] = strings([ATTACK.encode(), b"one"])
            yield outputs

    page = open_page(serve(fake_triton(assistant=hostile)).url)
    page.locator("#picture-input").set_input_files(PICTURE)  # type: ignore[arg-type]
    expect(page.locator("#attachments .file")).to_have_text(PICTURE["name"])
    nothing_became_markup(page)
    ask(page, "what is it?")
    expect(page.locator(".found .value")).to_have_text([ATTACK, f"{ATTACK} (0.90), one (0.10)"])
    nothing_became_markup(page)


def test_in_errors(serve: Serve, open_page: Open) -> None:
    async def refuse(request: Request) -> AsyncIterator[Tensors]:
        raise InvalidArgument(ATTACK)
        yield {}

    page = open_page(serve(fake_triton(llm=refuse)).url)
    ask(page, "one")
    expect(page.locator(".mark.failed")).to_contain_text(ATTACK)
    nothing_became_markup(page)


def test_the_policy_stops_what_a_mistake_of_ours_would_let_in(
    serve: Serve, open_page: Open, problems: list[str]
) -> None:
    """The second line: markup and scripts put in by force do nothing."""
    page = open_page(serve().url)
    violated = page.evaluate(
        """() => new Promise((resolve) => {
          const violated = [];
          addEventListener('securitypolicyviolation', (event) => {
            violated.push(event.effectiveDirective);
            if (violated.length === 3) resolve(violated.sort());
          });
          window.ran = [];
          const script = document.createElement('script');
          script.textContent = 'ran.push(1)';
          document.body.append(script);
          document.body.insertAdjacentHTML('beforeend', '<img src="data:," onerror="ran.push(2)">');
          fetch('http://127.0.0.1:9/').catch(() => ran.push('refused'));
        })"""
    )
    assert violated == ["connect-src", "script-src-attr", "script-src-elem"]
    assert page.evaluate("ran") == ["refused"]
    assert problems
    problems.clear()
