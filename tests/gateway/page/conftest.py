"""The page in a real headless Chromium, one for all tests; skipped where the machine has none.

Its microphone is a file: a tone of TONE_HZ for a second, silence for a second, and again.
"""

from __future__ import annotations

import shutil
import wave
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.gateway.conftest import Serve

PATIENCE_MS = 10_000
RATE = 16_000  # of what the server gets
TONE_HZ = 440
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# What a page cannot say of itself: each is told to the tests by its console.
TELL = "addEventListener('securitypolicyviolation', e => console.error('policy', e.violatedDirective))"

Open = Callable[..., Page]


# Until the last test of this folder: while it runs, the thread has an event loop, and async tests could not.
@pytest.fixture(scope="package")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine: apt-get install chromium")
    voice = tmp_path_factory.mktemp("microphone") / "tone.wav"
    write_tone(voice)
    arguments = [
        "--use-fake-device-for-media-stream",
        "--use-fake-ui-for-media-stream",
        f"--use-file-for-fake-audio-capture={voice}",
    ]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        try:
            yield chromium
        finally:
            chromium.close()


def write_tone(file: Path) -> None:
    """44.1 kHz: a rate that is no multiple of 16 kHz."""
    rate = 44_100
    tone = 0.5 * np.sin(2 * np.pi * TONE_HZ * np.arange(rate) / rate)
    samples = np.concatenate([tone, np.zeros(rate)])
    with wave.open(str(file), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes((samples * 32767).astype("<i2").tobytes())


@pytest.fixture
def problems() -> list[str]:
    """What went wrong in the pages of a test: it is to be empty in the end."""
    return []


@pytest.fixture
def open_page(browser: Browser, serve: Serve, problems: list[str]) -> Iterator[Open]:
    """Opens the page, of a new gateway unless `url` names one, in a window of its own.

    A script's error, a dialog or something that the page's policy forbids fails the test.
    """
    with ExitStack() as stack:

        def open_it(url: str = "", *, context: BrowserContext | None = None, **window: object) -> Page:
            if context is None:
                context = browser.new_context(**window)  # type: ignore[arg-type]
                stack.callback(context.close)
                context.set_default_timeout(PATIENCE_MS)
                context.add_init_script(TELL)
            page = context.new_page()
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))
            page.on("console", lambda one: problems.append(one.text) if is_problem(one.text) else None)
            page.goto(url or serve().url)
            return page

        expect.set_options(timeout=PATIENCE_MS)
        yield open_it
    assert not problems


def is_problem(text: str) -> bool:
    """Whether a line of the console is one; refusals and lost connections are what some tests are about."""
    return text.startswith(("policy", "Uncaught")) or "Content Security Policy" in text


def ask(page: Page, question: str) -> None:
    """Types a question and sends it."""
    page.get_by_label("Your question").fill(question)
    page.get_by_role("button", name="Send").click()


def answers(page: Page) -> list[str]:
    return page.locator(".answer .text").all_inner_texts()


def pitch(samples: np.ndarray) -> int:
    """The loudest frequency of the loudest half second, to 2 Hz."""
    half = RATE // 2
    parts = [samples[at : at + half] for at in range(0, samples.size - half, half // 4)]
    loudest = max(parts, key=lambda part: float(np.square(part).sum()))
    return 2 * int(np.argmax(np.abs(np.fft.rfft(loudest))))
