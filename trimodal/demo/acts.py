"""Runs the acts of the demo: each asks a running server, shows what came out, and says if it was right.

They ask through the gateway, with OpenAI's package, and measure what that sees: send to first text, gaps
between deltas.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from rich import box
from rich.console import Console
from rich.table import Table

from trimodal.client.timing import percentile
from trimodal.demo.chat import Reply, ask, data_url

# Questions and the topics that they are about.
BURST = (
    ("what is a lambda?", "lambda"),
    ("explain the while statement", "while"),
    ("how does yield work?", "yield"),
    ("Tell me about the with statement.", "with"),
    ("what does try do", "try"),
    ("explain the global statement", "global"),
    ("what is a coroutine?", "coroutine"),
    ("describe the assert statement", "assert"),
    ("what is an attribute reference?", "attribute reference"),
    ("explain the for statement", "for"),
    ("what does await do?", "await"),
    ("explain the if statement", "if"),
    ("what is a slice?", "slice"),
    ("tell me about raise", "raise"),
    ("explain the del statement", "del"),
    ("what does len do?", "len"),
)
# Question → where its answer is to come from.
CACHED = (
    ("what is a tuple?", ""),
    ("what is a tuple?", "exact"),
    ("could you tell me what a tuple is?", "semantic"),
    ("what is a slice?", ""),
)
_STORING_S = 0.5  # an answer is stored behind the request's back


async def text(api: AsyncOpenAI, console: Console, topics: dict[str, str], *, judged: bool) -> bool:
    """A streamed answer, sixteen questions at once, then the cache.

    `judged`: the cache has its semantic layer.
    """
    console.rule("[bold]Text: a language model that streams")
    question, topic = BURST[0]
    console.print(f"[bold]question[/bold]  {question}")
    console.print("[bold]answer[/bold]    ", end="")
    answer = await ask(api, _typed(question), show=lambda text: write(console, text))
    console.print("\n")
    good = _is_right(answer, topics[topic]) and await _burst(api, console, topics)
    return await _cache(api, console, topics, judged) and good


def _is_right(answer: Reply, text: str) -> bool:
    return answer.finish_reason == "stop" and answer.text == text


async def _burst(api: AsyncOpenAI, console: Console, topics: dict[str, str]) -> bool:
    began = time.perf_counter()
    answers = await asyncio.gather(*(ask(api, _typed(question)) for question, _ in BURST))
    seconds = time.perf_counter() - began
    tokens = sum(answer.completion_tokens for answer in answers)
    ttft = [answer.timing.ttft for answer in answers if answer.timing.ttft is not None]
    tpot = [answer.timing.tpot for answer in answers if answer.timing.tpot is not None]
    shown = table(f"{len(BURST)} questions at once, one batch", "", "p50", "p99")
    shown.add_row("time to first token (TTFT)", *(_ms(percentile(ttft, p)) for p in (50, 99)))
    shown.add_row("time per output token (TPOT)", *(_ms(percentile(tpot, p)) for p in (50, 99)))
    shown.add_row("all together", f"{tokens} tokens in {seconds:.2f} s", f"{tokens / seconds:.0f} tok/s")
    console.print(shown)
    return all(_is_right(answer, topics[topic]) for answer, (_, topic) in zip(answers, BURST, strict=True))


async def _cache(api: AsyncOpenAI, console: Console, topics: dict[str, str], judged: bool) -> bool:
    """Shows where each answer came from; each must have come from there."""
    title = "the cache: a question, again, in other words, and another one"
    shown = table(title, "question", "from", "similarity", "first text")
    good = True
    answers: list[str] = []
    for question, source in CACHED:
        # A slice was asked for before, among the sixteen: what is shown here is a new question.
        answer = await ask(api, _typed(question), no_cache=not source)
        answers.append(answer.text)
        found = str(answer.note.get("cache", ""))
        likeness = f"{answer.note['similarity']:.3f}" if found else ""
        shown.add_row(question, found or "the model", likeness, _ms(answer.timing.ttft or 0.0))
        expected = "" if source == "semantic" and not judged else source
        good &= found == expected and answer.finish_reason == "stop"
        await asyncio.sleep(_STORING_S)
    console.print(shown)
    if not judged:
        console.print("in other words it is another question: pip install 'trimodal[cache]'", markup=False)
    return good and answers == [topics["tuple"]] * 3 + [topics["slice"]]


def _typed(question: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": question}]


async def images(api: AsyncOpenAI, console: Console, folder: Path) -> bool:
    """Held-out digits from PNG and JPEG files."""
    console.rule("[bold]Images: a classifier")
    files = sorted(folder.iterdir())
    shown = table("handwritten digits that training never saw", "file", "is", "answer", "score", "time")
    right = 0
    for file in files:
        began = time.perf_counter()
        label, score = await _label(api, file)
        milliseconds = (time.perf_counter() - began) * 1e3
        truth = file.stem.split("-")[1]
        right += label == truth
        mark = "[green]✓[/green]" if label == truth else "[red]✗[/red]"
        shown.add_row(file.name, truth, f"{label} {mark}", f"{score:.3f}", f"{milliseconds:.1f} ms")
    console.print(shown)
    console.print(f"{right} of {len(files)} right\n")
    return right == len(files)


async def _label(api: AsyncOpenAI, file: Path) -> tuple[str, float]:
    """A picture's best label and its score. OpenAI has no such endpoint: it is posted by its path."""
    told: Any = await api.post("/images/classifications", cast_to=object, body={"input": [data_url(file)]})
    best = told["data"][0]["labels"][0]
    return best["label"], best["score"]


def table(title: str, *columns: str) -> Table:
    """An empty table; all columns but the first are numbers."""
    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, title_style="italic")
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index == 0 else "right")
    return made


def write(console: Console, text: str) -> None:
    """Writes plainly: rich takes longer for a word than the engine, and would show up as latency."""
    console.file.write(text)
    console.file.flush()


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:.1f} ms"
