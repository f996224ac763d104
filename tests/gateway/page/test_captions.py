"""Live captions: the microphone's sound over /v1/realtime, words while it comes."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.gateway.conftest import LIMIT_S, Serve, fake_triton
from tests.gateway.page.conftest import TONE_HZ, Open, pitch
from trimodal.client.transports.fake import FakeTransport
from trimodal.errors import Unavailable
from trimodal.gateway.keys import Key, add_key


def start(page: Page) -> None:
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#captions-state")).to_have_text("Listening")


def stop(page: Page) -> None:
    page.locator("#captions-button").click()
    expect(page.locator("#captions-state")).to_have_text("Words appear here while you speak.")


def heard(triton: FakeTransport) -> np.ndarray:
    sent = [request for request in triton.requests if request.model == "speech"]
    blocks = [array.ravel() for request in sent for array in request.inputs.values()]
    return np.concatenate([block.astype(np.float32) for block in blocks])


def test_words_while_somebody_speaks(serve: Serve, open_page: Open) -> None:
    served = serve()
    page = open_page(served.url)
    start(page)
    words = page.locator("#captions-text")
    expect(words).to_have_text("what is this?")
    expect(page.get_by_role("button", name="Stop", pressed=True)).to_be_visible()
    stop(page)
    assert pitch(heard(served.triton)) == pytest.approx(TONE_HZ, abs=20)
    deadline = time.monotonic() + LIMIT_S
    while served.triton.functions["speech"].streams:  # type: ignore[union-attr]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    expect(words).to_have_text("what is this?")  # stays


def test_with_a_key(serve: Serve, open_page: Open, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    key = add_key(file, Key(name="page"))
    page = open_page(serve(keys=file).url)
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Start").click()
    page.get_by_role("dialog").get_by_label("Key", exact=True).fill(key)
    page.keyboard.press("Enter")
    expect(page.locator("#captions-state")).to_have_text("Start again with the new key.")
    start(page)
    expect(page.locator("#captions-text")).to_have_text("what is this?")


def test_a_model_that_fails_is_told_of(serve: Serve, open_page: Open) -> None:
    def fail(request: object) -> object:
        raise Unavailable("no room for another stream")

    triton = fake_triton(speech=fail)
    page = open_page(serve(triton).url)
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#captions-state")).to_contain_text("no room for another stream")
    expect(page.get_by_role("button", name="Start")).to_be_enabled()
