"""Makes the tables "The assistant on the starter set": what is answered about pictures, label by label.

    python -m benchmarks.starter.assistant --labels 100

Labels are drawn from the classifier that is served, each with a plausible score, and put into the assistant's
own prompt. So the language model is measured, not the classifier. A label's plain word is its last one: "cat"
for "tabby cat". A spoken question makes the same prompt as a typed one (tests/assistant/test_prompt.py).
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.common import run_command
from benchmarks.tables import NARROW, make_table
from trimodal.assistant.prompt import Prompt
from trimodal.assistant.request import Turn, read_examples
from trimodal.assistant.values import Label, Labels
from trimodal.client import Client, Message
from trimodal.demo.assistant import names
from trimodal.paths import artefact_root, data_directory
from trimodal.server.options import ServerOptions
from trimodal.server.process import TritonServer

REPOSITORY = data_directory() / "model_repository"
WHAT = ("What is in this picture?", "What do you see?", "What is this?", "What does the photo show?")
DENIAL = re.compile(r"\b(no|not)\b|n't\b", re.IGNORECASE)
DOUBT = re.compile(
    r"\b(may|might|could|perhaps|possibly|maybe|unsure)\b|not (quite |entirely )?(sure|certain)", re.I
)
AT_ONCE = 8


@dataclass(frozen=True)
class Variant:
    """A way to ask: with the shipped examples or without, and how tokens are chosen."""

    name: str
    examples: bool
    options: dict[str, Any]


VARIANTS = (
    Variant("as shipped: examples, greedy", True, {}),
    Variant("examples, temperature 0.7", True, {"temperature": 0.7, "seed": 26}),
    Variant("no examples, greedy", False, {}),
    Variant("no examples, repetition penalty 1.15", False, {"repetition_penalty": 1.15}),
)


@dataclass(frozen=True)
class LabelQuestion:
    """A question about a label, and what its answer is held against."""

    kind: str
    text: str
    saw: Labels

    def is_right(self, answer: str) -> bool:
        label = self.saw[0].label.lower()
        named = names(answer, (label, label.split()[-1]))
        if self.kind == "denied":
            return bool(DENIAL.search(answer))
        if self.kind == "told as unsure":
            return named and bool(DOUBT.search(answer))
        return named and not DENIAL.search(answer)


def article(label: str) -> str:
    return ("an " if label[0].lower() in "aeiou" else "a ") + label


def questions(labels: Sequence[str], count: int) -> list[LabelQuestion]:
    """Four questions about each of `count` labels: what it is, surely and maybe; is it there; is another?"""
    draw = random.Random(26)
    asked = []
    for number, label in enumerate(draw.sample(labels, count)):
        other = draw.choice([one for one in labels if one.split()[-1] != label.split()[-1]])
        spans = ((0.45, 0.98), (0.1, 0.35))
        sure, unsure = ((Label(label=label, score=draw.uniform(*span)),) for span in spans)
        asked += [
            LabelQuestion("named", WHAT[number % len(WHAT)], sure),
            LabelQuestion("denied", f"Is there {article(other)}?", sure),
            LabelQuestion("confirmed", f"Is there {article(label)}?", sure),
            LabelQuestion("told as unsure", WHAT[number % len(WHAT)], unsure),
        ]
    return asked


def loops(answer: str) -> bool:
    """Whether a stretch of text comes three times in a row."""
    return bool(re.search(r"(.{3,}?)\1\1", answer))


class Check:
    """Asks a server; renders as the assistant does."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._prompt = Prompt(REPOSITORY / "assistant" / "prompt.jinja")
        examples = read_examples(REPOSITORY / "assistant" / "examples.json")
        self._examples = [self._message(turn, turn.content, turn.labels) for turn in examples]

    def _message(self, turn: Turn, text: str, saw: Labels) -> Message:
        return {
            "role": turn.role,
            "content": self._prompt.render(text, "", saw) if turn.role == "user" else text,
        }

    async def shares(self, variant: Variant, asked: Sequence[LabelQuestion]) -> dict[str, float]:
        """Of each kind of question, the share that is answered right; and of all answers, those that loop."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def answer(one: LabelQuestion) -> str:
            user = self._message(Turn(role="user", content=one.text), one.text, one.saw)
            messages = [*(self._examples if variant.examples else ()), user]
            async with slots:
                options = {"max_tokens": 40, "cache_control": "no-cache", **variant.options}
                return (await self._client.complete(messages=messages, **options)).text

        answers = await asyncio.gather(*map(answer, asked))
        right: dict[str, list[bool]] = {}
        for one, text in zip(asked, answers, strict=True):
            right.setdefault(one.kind, []).append(one.is_right(text))
        shares = {kind: sum(all_) / len(all_) for kind, all_ in right.items()}
        return shares | {"loop": sum(map(loops, answers)) / len(answers)}


async def measure(url: str, labels: Sequence[str], count: int, console: Console) -> None:
    async with Client(url) as client:
        asked, check = questions(labels, count), Check(client)
        columns = "prompt|named|denied|confirmed|told as unsure|loop"
        table = make_table(f"{count} labels, a question of each kind", columns, **NARROW)
        for variant in VARIANTS:
            shares = await check.shares(variant, asked)
            table.add_row(variant.name, *(f"{share:.0%}" for share in shares.values()))
        console.print(table)


def main(labels: Annotated[int, typer.Option(min=1, max=1000)] = 100) -> None:
    """Measures what the served language model answers about labels of the served classifier."""
    served = artefact_root("vision_classify") / "onnx-int8" / "labels.json"
    with TritonServer(ServerOptions.on_free_ports("assistant", repository=REPOSITORY)) as server:
        names = json.loads(served.read_text())
        asyncio.run(measure(server.grpc_url, names, labels, Console(highlight=False, width=150)))


if __name__ == "__main__":
    run_command(main)
