"""Asks the assistant in the demo: questions typed and spoken, some with a picture beside them.

Shows question, picture, voice and answer of each, and counts it only when what was heard and what was
answered is right: the digit for a question about a picture, the exact text for a topic.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from rich.console import Console
from rich.markup import escape

from trimodal.demo import acts
from trimodal.demo.chat import ask, question


@dataclass(frozen=True)
class Question:
    """What is asked, and what its answer has to match whole; files lie under the demo's folder."""

    answer: str
    text: str | None = None
    image: str | None = None
    audio: str | None = None


async def assistant(api: AsyncOpenAI, console: Console, folder: Path) -> bool:
    console.rule("[bold]Text, image and voice: the assistant")
    said = _texts(folder)
    good = True
    for asked in questions(topics(folder)):
        image, audio = (folder / file if file else None for file in (asked.image, asked.audio))
        _show_question(console, asked)
        reply = await ask(
            api,
            [question(asked.text, image, audio)],
            model="assistant",
            show=lambda text: acts.write(console, text),
            show_findings=lambda findings: _show_findings(console, findings),
        )
        timing = reply.timing
        first = 1e3 * (timing.ttft or 0.0)
        console.print(
            f"\n[dim]first text {first:.0f} ms after it was sent, all in {1e3 * timing.latency:.0f} ms[/dim]"
        )
        heard = said[asked.audio] if asked.audio else ""
        right = reply.note.get("heard", "") == heard and bool(re.fullmatch(asked.answer, reply.text))
        console.print("[green]✓ right[/green]\n" if right else "[red]✗ wrong[/red]\n")
        good &= right
    return good


def topics(folder: Path) -> dict[str, str]:
    """The answers that the demo's language model was trained to recite, by topic."""
    entries = json.loads((folder / "llm" / "topics.json").read_text(encoding="utf-8"))
    return {entry["topic"]: entry["answer"] for entry in entries}


def questions(known: dict[str, str]) -> tuple[Question, ...]:
    """What is asked: about a picture, beside a picture, without one, and off topic."""
    pictures, samples, voices = "vision/samples", "speech/samples", "speech/questions"
    return (
        Question(
            r"The picture shows the digit 7\.", text="What digit is this?", image=f"{pictures}/digit-7-a.png"
        ),
        Question(
            r"A 7\? The picture shows the digit 7, so yes\.",
            image=f"{pictures}/digit-7-b.jpg",
            audio=f"{voices}/03-is-it-seven.wav",
        ),
        Question(
            r"The picture shows the digit 3, and I am \d+ % sure\.",
            image=f"{pictures}/digit-3-a.png",
            audio=f"{voices}/04-how-sure.wav",
        ),
        Question(
            re.escape(known["lambda"]), image=f"{pictures}/digit-7-a.png", audio=f"{samples}/01-lambda.wav"
        ),
        Question(re.escape(known["while"]), audio=f"{samples}/02-while.wav"),
        Question("I only know a few topics .*", text="What is the capital of France?"),
    )


def _texts(folder: Path) -> dict[str, str]:
    """What each recording says, by its file under `folder`."""
    return {
        f"speech/{name}/{one['file']}": one["text"]
        for name in ("samples", "questions")
        for one in json.loads((folder / "speech" / name / "samples.json").read_text(encoding="utf-8"))
    }


def _show_question(console: Console, asked: Question) -> None:
    for name, told in (("question", asked.text), ("picture", asked.image), ("voice", asked.audio)):
        if told:
            console.print(f"[bold]{name:8}[/bold]  {escape(told if name == 'question' else Path(told).name)}")


def _show_findings(console: Console, findings: dict[str, Any]) -> None:
    if heard := findings["heard"]:
        console.print(f"[bold]heard[/bold]     {escape(heard)}")
    if labels := findings["labels"]:
        seen = ", ".join(f"{escape(one['label'])} ({one['score']:.2f})" for one in labels[:3])
        console.print(f"[bold]seen[/bold]      {seen}")
    console.print("[bold]answer[/bold]    ", end="")
