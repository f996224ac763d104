"""Runs the acts of the demo: each shows what went in and what came out, and says if it was right.

They ask through the gateway, with OpenAI's package, and measure what that sees: send to first text, gaps
between deltas.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from rich.console import Console

from trimodal.client.timing import percentile
from trimodal.demo.chat import Reply, ask, data_url
from trimodal.paths import INSTALL_JUDGE
from trimodal.report.console import Table, print_table

# Two turns of one chat: question, and a word that a right answer has.
TURNS = (("What is the capital of Japan?", "Tokyo"), ("And what is the capital of Germany?", "Berlin"))
# Asked at once: question, and words of which a right answer has one.
BURST = (
    ("What is the capital of Poland?", ("Warsaw",)),
    ("What is the capital of Canada?", ("Ottawa",)),
    ("What is the capital of Austria?", ("Vienna",)),
    ("What is the capital of Egypt?", ("Cairo",)),
    ("What is the capital of Russia?", ("Moscow",)),
    ("What is the capital of China?", ("Beijing",)),
    ("What is the capital of England?", ("London",)),
    ("What is the capital of Greece?", ("Athens",)),
    ("How many days are in a week?", ("seven", "7")),
    ("Which animal says meow?", ("cat",)),
    ("What is the chemical symbol for water?", ("H2O", "H₂O")),
    ("Who wrote Romeo and Juliet?", ("Shakespeare",)),
    ("What is the opposite of hot?", ("cold",)),
    ("What do bees make?", ("honey",)),
    ("What is 2 plus 2?", ("4", "four")),
    ("What is the opposite of up?", ("down",)),
)
BURST_RIGHT = 13  # of 16: it is a small model, and what shares a batch may change a word of a greedy answer
# Question, where its answer is to come from, and a word of it.
CACHED = (
    ("What is the capital of Norway?", "", "Oslo"),
    ("What is the capital of Norway?", "exact", "Oslo"),
    ("Could you tell me the capital of Norway?", "semantic", "Oslo"),
    ("What is the capital of Germany?", "", "Berlin"),
)
_STORING_S = 0.5  # an answer is stored behind the request's back
_SHOWN = 60  # characters of an answer in a table


async def chat(api: AsyncOpenAI, console: Console) -> bool:
    """Two turns. The second prompt begins as the first did, so that part is not computed again."""
    title(
        console,
        "Chat: two turns",
        "right: the answers name Tokyo and Berlin, the second prompt is cached in part",
    )
    messages: list[dict[str, Any]] = []
    good = True
    reply = Reply()
    for text, word in TURNS:
        messages.append({"role": "user", "content": text})
        console.print(f"[bold]question[/bold]  {text}")
        console.print("[bold]answer[/bold]    ", end="")
        # no_cache: stored answers are another act.
        reply = await ask(api, messages, show=lambda text: write(console, text), no_cache=True)
        messages.append({"role": "assistant", "content": reply.text})
        console.print(
            f"\n[dim]first text after {ms(reply.timing.ttft)}; prompt {reply.prompt_tokens} tokens, "
            f"{reply.cached_tokens} of them cached; answer {reply.completion_tokens} tokens[/dim]"
        )
        good &= word in reply.text
    return verdict(console, good and reply.cached_tokens > 0)


async def burst(api: AsyncOpenAI, console: Console) -> bool:
    """Sixteen questions at once."""
    title(
        console,
        f"Streams: {len(BURST)} questions at once, one batch",
        f"right: at least {BURST_RIGHT} answers hold the word looked for",
    )
    began = time.perf_counter()
    replies = await asyncio.gather(*(ask(api, typed(text), no_cache=True) for text, _ in BURST))
    seconds = time.perf_counter() - began
    goods = [has_one(reply.text, words) for (_, words), reply in zip(BURST, replies, strict=True)]
    rows = [
        (text, shorten(reply.text), mark(good))
        for (text, _), reply, good in zip(BURST, replies, goods, strict=True)
    ]
    print_table(Table("", ("question", "answer", "right"), rows, names=2), console)
    tokens = sum(reply.completion_tokens for reply in replies)
    ttft = [reply.timing.ttft for reply in replies if reply.timing.ttft is not None]
    gaps = [gap for reply in replies for gap in reply.timing.itl]
    figures = [
        ("time to first token (TTFT)", *(ms(percentile(ttft, p)) for p in (50, 99))),
        ("inter-token latency (ITL)", *(ms(percentile(gaps, p)) for p in (50, 99))),
        ("all together", f"{tokens} tokens in {seconds:.2f} s", f"{tokens / seconds:.0f} tok/s"),
    ]
    print_table(Table("", ("", "p50", "p99"), figures), console)
    return verdict(console, sum(goods) >= BURST_RIGHT, f"{sum(goods)} of {len(BURST)}")


async def cache(api: AsyncOpenAI, console: Console, *, judged: bool) -> bool:
    """Shows where each answer came from. `judged`: the cache has its semantic layer."""
    title(
        console,
        "Cache: a question, again, in other words, and another one",
        "right: a repeated question is found stored, another one is not; answers name Oslo and Berlin",
    )
    rows, good = [], True
    for text, source, word in CACHED:
        reply = await ask(api, typed(text))
        found = str(reply.note.get("cache", ""))
        likeness = f"{reply.note['similarity']:.3f}" if found else ""
        rows.append((text, shorten(reply.text), found or "the model", likeness, ms(reply.timing.ttft)))
        expected = "" if source == "semantic" and not judged else source
        good &= found == expected and word in reply.text
        await asyncio.sleep(_STORING_S)
    print_table(Table("", ("question", "answer", "from", "similarity", "first text"), rows, names=2), console)
    if not judged:
        console.print(f"in other words it is another question: {INSTALL_JUDGE}", markup=False)
    return verdict(console, good)


async def photos(api: AsyncOpenAI, console: Console, folder: Path) -> bool:
    """Photos that show what one of the classifier's classes is named after."""
    title(
        console,
        "Photos: a classifier",
        "right: the best label says what the photo shows, four times in five",
    )
    known = [one for one in json.loads((folder / "samples.json").read_text(encoding="utf-8")) if one["shows"]]
    rows, right = [], 0
    for one in known:
        began = time.perf_counter()
        label, score = await _label(api, folder / one["file"])
        seconds = time.perf_counter() - began
        good = has_one(label, one["shows"])
        right += good
        rows.append((one["file"], label, f"{score:.2f}", ms(seconds), mark(good)))
    print_table(Table("", ("photo", "label", "score", "time", "right"), rows, names=2), console)
    return verdict(console, right >= 0.8 * len(known), f"{right} of {len(known)}")


async def _label(api: AsyncOpenAI, file: Path) -> tuple[str, float]:
    """A picture's best label and its score. OpenAI has no such endpoint: it is posted by its path."""
    told: Any = await api.post("/images/classifications", cast_to=object, body={"input": [data_url(file)]})
    best = told["data"][0]["labels"][0]
    return best["label"], best["score"]


def typed(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def has_one(text: str, words: Sequence[str]) -> bool:
    """Whether one of the words is in the text, in any case."""
    return any(word.lower() in text.lower() for word in words)


def title(console: Console, text: str, rule: str) -> None:
    """Begins an act: its name, and by which rule it counts as right."""
    console.rule(f"[bold]{text}")
    console.print(f"[dim]{rule}[/dim]")


def verdict(console: Console, right: bool, count: str = "") -> bool:
    """Ends an act."""
    told = f"{count} {mark(right)} {'right' if right else 'wrong'}\n".lstrip()
    console.print(told, style="green" if right else "red")
    return right


def mark(right: bool) -> str:
    return "✓" if right else "✗"


def shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 2]} …"


def write(console: Console, text: str) -> None:
    """Writes plainly: rich takes longer for a word than the engine, and would show up as latency."""
    console.file.write(text)
    console.file.flush()


def ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:.1f} ms"
