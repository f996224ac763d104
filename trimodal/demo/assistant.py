"""Asks the assistant in the demo: questions typed and spoken, some with a picture beside them.

Shows question, picture, voice and answer of each, and counts it only when what was heard and what was
answered is right: the digit for a question about a picture, the exact text for a topic.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from trimodal.client import AskStream, Client, Delta, Heard, Saw
from trimodal.demo import acts

MAX_TOKENS = 120


@dataclass(frozen=True)
class Question:
    """What is asked, and what its answer has to match whole; files lie under the demo's folder."""

    answer: str
    text: str | None = None
    image: str | None = None
    audio: str | None = None


async def assistant(client: Client, console: Console, folder: Path) -> bool:
    """Asks each question and shows how long the stages of the one with a voice and a picture took."""
    console.rule("[bold]Text, image and voice: the assistant")
    said = _texts(folder)
    good = True
    streams = []
    for question in questions(topics(folder)):
        stream = client.ask(
            question.text,
            image=folder / question.image if question.image else None,
            audio=folder / question.audio if question.audio else None,
            max_tokens=MAX_TOKENS,
        )
        streams.append(stream)
        await _show(stream, console, question)
        heard = said[question.audio] if question.audio else ""
        right = stream.heard == heard and bool(re.fullmatch(question.answer, stream.text))
        console.print("[green]✓ right[/green]\n" if right else "[red]✗ wrong[/red]\n")
        good &= right
    _times(console, streams[1])
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


async def _show(stream: AskStream, console: Console, question: Question) -> None:
    for name, told in (("question", question.text), ("picture", question.image), ("voice", question.audio)):
        if told:
            console.print(f"[bold]{name:8}[/bold]  {escape(told if name == 'question' else Path(told).name)}")
    answering = False
    async for item in stream:
        if isinstance(item, Heard):
            console.print(f"[bold]heard[/bold]     {escape(item.text)}")
        elif isinstance(item, Saw):
            seen = ", ".join(f"{escape(one.label)} ({one.score:.2f})" for one in item.labels[:3])
            console.print(f"[bold]seen[/bold]      {seen}")
        elif isinstance(item, Delta):
            if not answering:
                console.print("[bold]answer[/bold]    ", end="")
                answering = True
            acts.write(console, item.text)
    ttft, total = stream.stages["ttft"] or 0, stream.stages["total"] or 0
    console.print(f"\n[dim]first text {ttft:.0f} ms after the question was sent, all in {total:.0f} ms[/dim]")


def _times(console: Console, stream: AskStream) -> None:
    title = "a voice and a picture at once: how long each stage took, milliseconds"
    table = acts.table(title, "heard", "saw", "first text", "all")
    table.add_row(*(f"{stream.stages[name] or 0:.0f}" for name in ("heard", "saw", "ttft", "total")))
    console.print(table)
