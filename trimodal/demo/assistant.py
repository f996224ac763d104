"""Asks the assistant in the demo: about photos, typed and spoken, and without one.

Free packages carry no recording of a person who asks about a picture. So the spoken input is a sentence of
an audiobook: what is shown is that it is heard, and that the answer names what the photo shows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from rich.console import Console
from rich.markup import escape

from trimodal.audio.word_errors import word_error_rate
from trimodal.demo import acts
from trimodal.demo.chat import ask, question
from trimodal.demo.listening import MAX_WER

_DENIAL = re.compile(r"\b(no|not)\b|n't\b", re.IGNORECASE)
_DENIED = re.compile(r"\b(?:not (?:an?|the)|no) [^.,;!?]*", re.IGNORECASE)


@dataclass(frozen=True)
class Question:
    """What is asked, and what makes its answer right: one of the words, and a denial where one is due.

    Files lie under the samples' folder.
    """

    words: tuple[str, ...]
    text: str | None = None
    image: str | None = None
    audio: str | None = None
    denied: bool = False

    def is_right(self, answer: str, heard: str, said: str) -> bool:
        """`heard` is what was made of the recording, `said` what it says."""
        listened = not said or word_error_rate([said], [heard]) <= MAX_WER
        return listened and names(answer, self.words) and (not self.denied or bool(_DENIAL.search(answer)))


def names(answer: str, words: Sequence[str]) -> bool:
    """Whether the answer names one of the words, and does not deny it in the same breath."""
    denied = " ".join(_DENIED.findall(answer))
    return acts.has_one(_DENIED.sub("", answer), words) and not acts.has_one(denied, words)


QUESTIONS = (
    Question(("cat", "tabby"), text="What is this?", image="photos/cat.jpg"),
    Question(("koala",), text="Is there a dog?", image="photos/koala.jpg", denied=True),
    Question(("panda",), image="photos/panda.jpg", audio="speech/austen-2-young-man.wav"),
    Question(
        ("macaw", "parrot"),
        text="What do you see?",
        image="photos/macaw.jpg",
        audio="speech/austen-5-himself.wav",
    ),
    Question(("Tokyo",), text="What is the capital of Japan?"),
)


async def assistant(api: AsyncOpenAI, console: Console, folder: Path) -> bool:
    acts.title(
        console,
        "Assistant: text, photo and voice",
        "right: the answer names what the photo shows and does not deny it (or denies what is not there), "
        f"and what was said is heard with a word error rate of at most {MAX_WER:.0%}",
    )
    said = texts(folder)
    right = 0
    for asked in QUESTIONS:
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
        good = asked.is_right(reply.text, reply.note.get("heard", ""), said.get(asked.audio or "", ""))
        right += acts.verdict(console, good)
    return right == len(QUESTIONS)


def texts(folder: Path) -> dict[str, str]:
    """What each recording says, by its file under `folder`."""
    listed = json.loads((folder / "speech" / "samples.json").read_text(encoding="utf-8"))
    return {f"speech/{one['file']}": one["text"] for one in listed}


def _show_question(console: Console, asked: Question) -> None:
    for name, told in (("question", asked.text), ("photo", asked.image), ("voice", asked.audio)):
        if told:
            console.print(f"[bold]{name:8}[/bold]  {escape(told if name == 'question' else Path(told).name)}")


def _show_findings(console: Console, findings: dict[str, Any]) -> None:
    if heard := findings["heard"]:
        console.print(f"[bold]heard[/bold]     {escape(heard)}")
    if labels := findings["labels"]:
        seen: Sequence[str] = [f"{escape(one['label'])} ({one['score']:.2f})" for one in labels[:3]]
        console.print(f"[bold]seen[/bold]      {', '.join(seen)}")
    console.print("[bold]answer[/bold]    ", end="")
