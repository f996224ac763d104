"""Asks a real server of the demo engines about pictures, typed and spoken, and counts what is answered right.

    python build/demo/check_assistant.py                # all of it, in both numerics, into llm/served.json
    python build/demo/check_assistant.py --table FILE.md # the sample pictures and the off-topic list

Pictures are the 360 that the classifier never saw; questions are of templates that neither the language model
nor the speech model was trained on, spoken by voices that it never heard.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import itertools
import json
import random
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from llm_training import off_topic, pictures
from llm_training.data import load_topics
from llm_training.phrases import REFUSAL, plain_question, written
from PIL import Image
from speech_training.samples import spoken
from speech_training.voices import HELD_OUT_VARIANTS, random_voice

from trimodal.assistant.values import ImageLabels
from trimodal.client import AskStream, Client, Message
from trimodal.server.options import ServerOptions
from trimodal.server.process import TritonServer

DEMO = Path(__file__).resolve().parent
NUMERICS = ("fast", "reproducible")
SPOKEN, AT_ONCE = 200, 4
WANTED = {
    "pictures_typed": 0.97, "pictures_spoken": 0.97, "talks": 0.97, "off_topic_refused": 0.98,
    "off_topic_refused_beside_picture": 0.98, "topics": 1.0, "topics_beside_picture": 1.0,
}  # fmt: skip
# Asked of the sample pictures in turn; the spoken ones are recordings in speech/questions.
TYPED = (
    "What digit is this?", "which number do you see", "Is it a {}?", "How sure are you?",
    "What's in the picture?", "is this a {} or a {}?", "Can you read this number?", "is it a 7?",
    "Tell me the digit, please.", "are you sure?",
)  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """A question with the kind of its answer."""

    kind: str
    text: str
    answer: str


def question(digit: int, random_: random.Random, voiced: bool) -> Asked:
    """One of a held-out template about a picture of `digit`."""
    others = random_.sample([one for one in range(10) if one != digit], 2)
    saw = ImageLabels(tuple(map(str, (digit, *others))), (0.9, 0.07, 0.03))
    templates = pictures.HELD_OUT_SPOKEN if voiced else pictures.HELD_OUT
    kind = random_.choice(list(templates))
    text, answer = pictures.ask(kind, saw, random_, templates, voiced)
    return Asked(kind, text if voiced else written(text, random_), answer)


def is_right(asked: Asked, digit: int, seen: ImageLabels, said: str) -> bool:
    """Whether the answer is right for the digit that the picture shows, whatever the classifier says."""
    if asked.kind in ("which", "claim"):
        return said == asked.answer
    return seen.labels[0] == str(digit) and said == pictures.answer(asked.kind, seen, 0)


def seen_by(stream: AskStream) -> ImageLabels:
    return ImageLabels(
        tuple(one.label for one in stream.labels), tuple(float(one.score) for one in stream.labels)
    )


async def gathered(work: Iterable[Callable[[], Awaitable[bool]]]) -> float:
    """The share that came out true, AT_ONCE at a time."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(task: Callable[[], Awaitable[bool]]) -> bool:
        async with slots:
            return await task()

    results = await asyncio.gather(*(one(task) for task in work))
    return round(sum(results) / len(results), 4)


def png(image: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return file.getvalue()


class Check:
    """All questions to one server; keeps what went wrong."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.faults: list[str] = []
        held = np.load(DEMO / "vision" / "evaluation.npz")
        self.pictures = [
            (png(image), int(digit)) for image, digit in zip(held["images"], held["labels"], strict=True)
        ]

    async def measure(self) -> dict[str, float]:
        """Each figure's share."""
        random_ = random.Random(23)
        figures = {}
        figures["pictures_typed"] = await gathered(
            self._picture(image, digit, question(digit, random_, False)) for image, digit in self.pictures
        )
        figures["pictures_spoken"] = await gathered(
            self._picture(image, digit, question(digit, random_, True), random_)
            for image, digit in self.pictures[:SPOKEN]
        )
        figures["talks"] = await gathered(
            self._talk(image, digit, random_) for image, digit in self.pictures[:100]
        )
        beside = itertools.cycle(image for image, _ in self.pictures)
        for name, with_picture in (("", False), ("_beside_picture", True)):
            for what, pairs in (
                ("off_topic_refused", [(text, REFUSAL) for text in off_topic.HELD_OUT]),
                ("topics", [(plain_question(topic), topic["answer"]) for topic in load_topics()]),
            ):
                figures[what + name] = await gathered(
                    self._exact(text, answer, next(beside) if with_picture else None)
                    for text, answer in pairs
                )
        return figures

    def _picture(
        self, image: bytes, digit: int, asked: Asked, voice: random.Random | None = None
    ) -> Callable[[], Awaitable[bool]]:
        audio = None
        if voice is not None:
            audio = spoken((asked.text,), random_voice(voice, HELD_OUT_VARIANTS), voice).audio

        async def run() -> bool:
            stream = self.client.ask(None if voice else asked.text, image=image, audio=audio)
            await stream.answer()
            right = is_right(asked, digit, seen_by(stream), stream.text)
            if not right:
                self.faults.append(f"{digit} {asked.text!r} heard {stream.heard!r}: {stream.text!r}")
            return right

        return run

    def _exact(self, text: str, answer: str, image: bytes | None) -> Callable[[], Awaitable[bool]]:
        async def run() -> bool:
            said = (await self.client.ask(text, image=image, max_tokens=150).answer()).text
            if said != answer:
                self.faults.append(f"{text!r}{' beside a picture' if image else ''}: {said!r}")
            return said == answer

        return run

    def _talk(self, image: bytes, digit: int, random_: random.Random) -> Callable[[], Awaitable[bool]]:
        """A question about a picture, and one or two more without it."""
        turns = [question(digit, random_, False) for _ in range(random_.randint(2, 3))]

        async def run() -> bool:
            first = self.client.ask(turns[0].text, image=image)
            await first.answer()
            seen = seen_by(first)
            messages: list[Message] = [
                {"role": "user", "content": pictures.PROMPT.render(turns[0].text, "", seen)},
                {"role": "assistant", "content": first.text},
            ]
            right = is_right(turns[0], digit, seen, first.text)
            for asked in turns[1:]:
                messages.append({"role": "user", "content": asked.text})
                said = (await self.client.complete(messages=messages)).text
                messages.append({"role": "assistant", "content": said})
                right &= is_right(asked, digit, seen, said)
            if not right:
                self.faults.append(f"{digit} {[message['content'] for message in messages]}")
            return right

        return run


async def table(client: Client) -> str:
    """Markdown: each sample picture asked about by keyboard and by voice, and the off-topic list."""
    folder = DEMO / "speech" / "questions"
    recordings = [one["file"] for one in json.loads((folder / "samples.json").read_text())]
    lines = ["| picture | question | heard | seen | answer |", "|---|---|---|---|---|"]
    for index, image in enumerate(sorted((DEMO / "vision" / "samples").iterdir())):
        digit = int(image.name.split("-")[1])
        words = (pictures.WORDS[digit], pictures.WORDS[(digit + 3) % 10])
        typed = TYPED[3 * index % len(TYPED)].format(*words).replace("a eight", "an eight")
        recording = recordings[3 * index % len(recordings)]
        for text, audio in ((typed, None), (None, folder / recording)):
            stream = client.ask(text, image=image, audio=audio)
            await stream.answer()
            seen = ", ".join(f"{one.label} ({one.score:.2f})" for one in stream.labels[:2])
            asked = text or f"*{recording}*"
            lines.append(f"| {image.name} | {asked} | {stream.heard} | {seen} | {stream.text} |")
    lines += ["", "| off topic | answer |", "|---|---|"]
    for text in ("What is the capital of France?", *off_topic.HELD_OUT):
        lines.append(f"| {text} | {(await client.ask(text).answer()).text} |")
    return "\n".join(lines) + "\n"


async def run(url: str, out: Path | None) -> dict[str, float]:
    async with Client(url) as client:
        if out:
            out.write_text(await table(client), encoding="utf-8")
            return {}
        check = Check(client)
        figures = await check.measure()
        print(*check.faults, sep="\n")
        return figures


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--numerics", choices=NUMERICS, help="only this (default: both)")
    parser.add_argument("--table", type=Path, help="write tables of questions and answers; measure nothing")
    options = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    for numerics in (options.numerics,) if options.numerics else NUMERICS:
        changes = {"llm": {"numerics": numerics}}
        server = ServerOptions(
            models=("assistant",), changes=changes, http_port=0, grpc_port=0, metrics_port=0
        )
        with TritonServer(server) as running:
            figures[numerics] = asyncio.run(run(running.grpc_url, options.table))
        if options.table:
            return 0
        for name, share in figures[numerics].items():
            missed = "" if share >= WANTED[name] else f"  MISSED: at least {WANTED[name]:.0%}"
            print(f"{numerics:14}{name:36}{share:.1%}{missed}", flush=True)
    (DEMO / "llm" / "served.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    failed = any(share < WANTED[name] for one in figures.values() for name, share in one.items())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
