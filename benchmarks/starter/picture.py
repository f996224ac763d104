"""Makes docs/page.png: the page in Chromium with a question, a photo and live captions of a human voice.

python -m benchmarks.starter.picture docs/page.png
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import numpy as np
import soundfile
import typer
from playwright.async_api import Page

from benchmarks.common import SAMPLES, run_command
from benchmarks.starter.conversation import OVER, opened_page
from benchmarks.starter.talks import MODELS
from trimodal.audio.values import SAMPLE_RATE

VOICES = ("austen-2-young-man.wav", "austen-3-selfish.wav")
PHOTO = SAMPLES.parent / "photos" / "koala.jpg"
CAPTION_MS = 9_000  # of the voices


async def show(page: Page) -> None:
    """Asks each kind once unseen, so that nothing is seen for the first time, and then to be seen."""
    for _ in range(2):
        await page.get_by_role("button", name="New chat").click()
        await _ask(page, "What is the capital of Japan?", 1)
        await page.locator("#picture-input").set_input_files(PHOTO)
        await _ask(page, "What is in this picture?", 2)
    await page.locator("#captions-button").click()
    await page.wait_for_timeout(CAPTION_MS)


async def _ask(page: Page, question: str, count: int) -> None:
    await page.get_by_label("Your question").fill(question)
    await page.get_by_role("button", name="Send").click()
    await page.wait_for_function(OVER, arg=count)


async def make(file: Path) -> None:
    """Serves the starter set and writes the picture. Raises: as `opened_page`."""
    async with opened_page((*MODELS, "vision", "assistant"), {}, 860) as (page, voices):
        samples = [soundfile.read(SAMPLES / name, dtype="float32")[0] for name in VOICES]
        soundfile.write(voices, np.concatenate(samples), SAMPLE_RATE, subtype="PCM_16")
        await show(page)
        await page.screenshot(path=file)


def main(file: Annotated[Path, typer.Argument(help="to be written")]) -> None:
    """Makes the page's picture."""
    asyncio.run(make(file))


if __name__ == "__main__":
    run_command(main)
