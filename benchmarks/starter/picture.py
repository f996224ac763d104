"""Makes docs/page.png: the page in Chromium with a question, a photo and live captions of a human voice.

python -m benchmarks.starter.picture docs/page.png
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated

import numpy as np
import soundfile
import typer
from playwright.async_api import Page, async_playwright

from benchmarks.common import SAMPLES, running_gateway
from benchmarks.starter.conversation import LIMIT_MS, OVER, find_chromium
from benchmarks.starter.talks import MODELS
from trimodal.audio.values import SAMPLE_RATE
from trimodal.bench.common.serving import serving
from trimodal.errors import ServerError
from trimodal.server.options import ServerOptions

VOICES = ("austen-4-amiable.wav", "austen-5-himself.wav")
PHOTO = SAMPLES.parent / "photos" / "koala.jpg"
CAPTION_MS = 9_000  # of the voices


async def show(page: Page) -> None:
    """Asks each kind once unseen, so that nothing is seen for the first time, and then to be seen."""
    for _ in range(2):
        await page.get_by_role("button", name="New chat").click()
        await _ask(page, "What is the capital of France?", 1)
        await page.locator("#picture-input").set_input_files(PHOTO)
        await _ask(page, "What is in this picture?", 2)
    await page.locator("#captions-button").click()
    await page.wait_for_timeout(CAPTION_MS)


async def _ask(page: Page, question: str, count: int) -> None:
    await page.get_by_label("Your question").fill(question)
    await page.get_by_role("button", name="Send").click()
    await page.wait_for_function(OVER, arg=count)


async def make(file: Path) -> None:
    """Serves the starter set and writes the picture. Raises: OperatorError when it cannot start."""
    chromium = find_chromium()
    if chromium is None:
        raise ServerError("there is no Chromium on this machine: apt-get install chromium")
    with tempfile.TemporaryDirectory(prefix="trimodal-voices-") as folder:
        voices = Path(folder) / "voices.wav"
        samples = [soundfile.read(SAMPLES / name, dtype="float32")[0] for name in VOICES]
        soundfile.write(voices, np.concatenate(samples), SAMPLE_RATE, subtype="PCM_16")
        arguments = [
            "--use-fake-device-for-media-stream",
            "--use-fake-ui-for-media-stream",
            f"--use-file-for-fake-audio-capture={voices}%noloop",
        ]
        options = ServerOptions.on_free_ports(*MODELS, "vision", "assistant")
        async with (
            serving(options) as (server, _),
            running_gateway(server.grpc_url) as (port, _),
            async_playwright() as playwright,
        ):
            browser = await playwright.chromium.launch(executable_path=chromium, args=arguments)
            try:
                page = await browser.new_page(viewport={"width": 1280, "height": 860})
                page.set_default_timeout(LIMIT_MS)
                await page.goto(f"http://127.0.0.1:{port}")
                await show(page)
                await page.screenshot(path=file)
            finally:
                await browser.close()


def main(file: Annotated[Path, typer.Argument(help="to be written")]) -> None:
    """Makes the page's picture."""
    asyncio.run(make(file))


if __name__ == "__main__":
    typer.run(main)
