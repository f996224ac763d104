"""The demo's act of the assistant: recorded questions are answered, one with an image beside it.

The answer to the spoken question must be that to the typed one. How the stages come together is
the assistant's affair; here they are only shown.
"""

from __future__ import annotations

import json
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trimodal.client import AskStream, Client, Delta, Heard

# Questions of the recordings that the language model was trained to answer.
QUESTIONS = ("01-lambda.wav", "02-while.wav")
MAX_TOKENS = 120


async def assistant(client: Client, console: Console, folder: Path) -> bool:
    """Spoken questions, answered; the second with an image beside it."""
    console.rule("[bold]Text, image and voice: the assistant")
    speech, image = folder / "speech" / "samples", folder / "vision" / "samples" / "digit-7-a.png"
    said = {one["file"]: one["text"] for one in json.loads((speech / "samples.json").read_text())}
    good = True
    for file in QUESTIONS:
        stream = client.ask(audio=speech / file, max_tokens=MAX_TOKENS)
        await _show(stream, console, file)
        typed = await client.complete(said[file], max_tokens=MAX_TOKENS, cache_control="no-cache")
        good &= (stream.heard, stream.text) == (said[file], typed.text)
    both = client.ask(image=image, audio=speech / QUESTIONS[0], max_tokens=1)
    await both.answer()
    table = Table(
        title=f"a voice and {image.name} at once: how long each stage took, milliseconds",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        title_style="italic",
    )
    for column in ("heard", "saw", "first text", "all"):
        table.add_column(column, justify="right")
    table.add_row(*(f"{both.stages[name] or 0:.0f}" for name in ("heard", "saw", "ttft", "total")))
    console.print(table)
    seen = both.labels[0].label if both.labels else "nothing"
    console.print(f"heard: {escape(both.heard)}; saw: {escape(seen)}\n")
    return good and (both.heard, seen) == (said[QUESTIONS[0]], image.stem.split("-")[1])


async def _show(stream: AskStream, console: Console, file: str) -> None:
    console.print(f"[bold]spoken[/bold]    {file}")
    async for item in stream:
        if isinstance(item, Heard):
            console.print(f"[bold]heard[/bold]     {escape(item.text)}")
            console.print("[bold]answer[/bold]    ", end="")
        elif isinstance(item, Delta):
            # Plain writes: rich takes longer for a word than the engine, and would show up as latency.
            console.file.write(item.text)
            console.file.flush()
    ttft, total = stream.stages["ttft"] or 0, stream.stages["total"] or 0
    console.print(
        f"\n[dim]first text {ttft:.0f} ms after the recording was sent, all in {total:.0f} ms[/dim]\n"
    )
