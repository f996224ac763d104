"""Has the page's spoken conversation in Chromium, by human voices: four turns, the third interrupts.

    python -m benchmarks.starter.conversation
    python -m benchmarks.starter.conversation --tiny --screenshot conversation.png

Chromium's microphone is a WAV file of the project's recordings. A typed question is asked first: by how long
its answer takes the pauses between the turns are chosen, so that only the second answer is interrupted.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import soundfile
import typer
from playwright.async_api import Page, async_playwright
from rich.console import Console

from benchmarks.common import SAMPLES, run_command, running_gateway, serving
from benchmarks.starter.talks import MODELS, TINY
from benchmarks.tables import make_table
from trimodal.audio.values import SAMPLE_RATE
from trimodal.errors import ServerError
from trimodal.server.options import ServerOptions

VOICES = ("austen-5-himself.wav", "austen-4-amiable.wav", "austen-3-selfish.wav", "austen-2-young-man.wav")
INTERRUPTED = 1  # of the answers
LEAD_S, END_S = 2.0, 2.0  # before the first word; from a turn's end to its answer, about
SYSTEM = "You are a novelist. Answer with a long story about what is said."
LONG = {"llm": {"default_max_tokens": "160"}}
LIMIT_MS = 120_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
TURNS = "() => JSON.parse(sessionStorage.getItem('trimodal.turns') ?? '[]')"
OVER = f"""count => {{ const turns = ({TURNS})();
  return turns.length >= count && turns.every(({{ answer }}) => answer.state !== "waiting"); }}"""


@dataclass(frozen=True)
class SpokenTurn:
    """What was heard and answered; `first_ms`: from the end of speech to the first text, by the page's clock.

    `state`: done, or interrupted. `parts_ms`: of `first_ms`, by name.
    """

    question: str
    answer: str
    state: str
    first_ms: float | None
    parts_ms: dict[str, float]


def write_voices(file: Path, answer_s: float) -> None:
    """The microphone's sound, where an answer takes so long."""
    parts = [np.zeros(round(LEAD_S * SAMPLE_RATE), np.float32)]
    for number, name in enumerate(VOICES):
        pause_s = END_S + answer_s / 6 if number == INTERRUPTED else 2 * (END_S + answer_s)
        samples = soundfile.read(SAMPLES / name, dtype="float32")[0]
        parts += [samples, np.zeros(round(pause_s * SAMPLE_RATE), np.float32)]
    soundfile.write(file, np.concatenate(parts), SAMPLE_RATE, subtype="PCM_16")


@asynccontextmanager
async def opened_page(
    models: Sequence[str], changes: dict[str, dict[str, str]], height: int
) -> AsyncIterator[tuple[Page, Path]]:
    """The page of a server of its own, and the WAV file that its microphone reads when it opens.

    Raises: OperatorError when it cannot start; playwright's TimeoutError within.
    """
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    if chromium is None:
        raise ServerError("there is no Chromium on this machine: apt-get install chromium")
    with tempfile.TemporaryDirectory(prefix="trimodal-voices-") as folder:
        voices = Path(folder) / "voices.wav"
        arguments = [
            "--use-fake-device-for-media-stream",
            "--use-fake-ui-for-media-stream",
            f"--use-file-for-fake-audio-capture={voices}%noloop",
        ]
        async with (
            serving(ServerOptions.on_free_ports(*models, changes=changes)) as (server, _),
            running_gateway(server.grpc_url) as (port, _),
            async_playwright() as playwright,
        ):
            browser = await playwright.chromium.launch(executable_path=chromium, args=arguments)
            try:
                page = await browser.new_page(viewport={"width": 1280, "height": height})
                page.set_default_timeout(LIMIT_MS)
                await page.goto(f"http://127.0.0.1:{port}")
                yield page, voices
            finally:
                await browser.close()


async def _answer_s(page: Page) -> float:
    """Seconds of a typed question's answer."""
    await page.get_by_text("System prompt and temperature").click()
    await page.get_by_label("System prompt").fill(SYSTEM)
    await page.get_by_text("System prompt and temperature").click()
    await page.get_by_label("Your question").fill("He was not an ill-disposed young man.")
    await page.get_by_role("button", name="Send").click()
    await page.wait_for_function(OVER, arg=1)
    (turn,) = await page.evaluate(TURNS)
    return float(turn["answer"]["timing"]["total"]) / 1e3


def _turn(told: dict[str, Any]) -> SpokenTurn:
    answer = told["answer"]
    timing = answer.get("timing") or {"ttft": None, "parts": []}
    parts = {name: ms for name, ms in timing["parts"] if name != "tokens"}
    return SpokenTurn(told["question"]["text"], answer["text"], answer["state"], timing["ttft"], parts)


async def measure(changes: dict[str, dict[str, str]], screenshot: Path) -> list[SpokenTurn]:
    """Has the conversation on a server of its own. Raises: as `opened_page`."""
    async with opened_page(MODELS, {**changes, **LONG}, 1500) as (page, voices):
        write_voices(voices, await _answer_s(page))
        await page.get_by_role("button", name="New chat").click()
        await page.get_by_role("button", name="Converse").click()
        await page.wait_for_function(OVER, arg=len(VOICES))
        await page.screenshot(path=screenshot)
        return [_turn(one) for one in await page.evaluate(TURNS)]


def main(
    tiny: Annotated[bool, typer.Option("--tiny", help="with whisper-tiny.en")] = False,
    screenshot: Annotated[Path, typer.Option(help="of the page in the end")] = Path("conversation.png"),
) -> None:
    """Measures a spoken conversation on the page."""
    turns = asyncio.run(measure(TINY if tiny else {}, screenshot))
    table = make_table("end of speech to first text, on the page (ms)", "heard|answer|first text|of which")
    for one in turns:
        parts = ", ".join(f"{name} {ms:.0f}" for name, ms in one.parts_ms.items())
        first = "–" if one.first_ms is None else f"{one.first_ms:.0f}"
        table.add_row(one.question, one.state, first, parts)
    Console(highlight=False).print(table)
    Console(highlight=False).print(f"{screenshot}: the page")


if __name__ == "__main__":
    run_command(main)
