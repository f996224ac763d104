"""Runs the acts of the demo: each asks a running server, shows what came out, and says if it was right.

They ask through the gateway, with OpenAI's package, and measure what that sees: send to first text, gaps
between deltas.
"""

from __future__ import annotations

import asyncio
import base64
import time
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from trimodal.client.timing import percentile
from trimodal.demo.chat import Reply, ask

# Long on purpose: its KV blocks are what the second question finds in the prefix cache.
HANDBOOK = (
    "You are a pocket reference of the Python language. Answer with the first sentences of the "
    "documentation and nothing else. The language reference describes the syntax and the core semantics. "
    "It is terse, but attempts to be exact and complete. The semantics of non-essential built-in object "
    "types and of the built-in functions and modules are described in the library reference. For an informal "
    "introduction to the language, see the tutorial. "
)

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
    """Two streamed answers with a shared system prompt, sixteen questions at once, then the cache.

    `judged`: the cache has its semantic layer.
    """
    console.rule("[bold]Text: a language model that streams")
    handbook = HANDBOOK * 4
    answers = []
    for question, _ in BURST[:2]:
        messages = [{"role": "system", "content": handbook}, {"role": "user", "content": question}]
        answers.append(await _streamed(api, console, question, messages))
    cold, warm = answers
    shown = table("same long system prompt twice", "", "first answer", "second answer")
    shown.add_row("prompt tokens", str(cold.prompt_tokens), str(warm.prompt_tokens))
    shown.add_row("of them from the prefix cache", str(cold.cached_tokens), str(warm.cached_tokens))
    shown.add_row("time to first token (TTFT)", _ms(cold.timing.ttft), _ms(warm.timing.ttft))
    shown.add_row("time per output token (TPOT)", *(_ms(answer.timing.tpot) for answer in answers))
    shown.add_row("whole answer", *(_ms(answer.timing.latency) for answer in answers))
    console.print(shown)
    good = all(_is_right(answer, topics[topic]) for answer, (_, topic) in zip(answers, BURST, strict=False))
    good = good and await _burst(api, console, topics)
    return await _cache(api, console, topics, judged) and good


async def _streamed(
    api: AsyncOpenAI, console: Console, question: str, messages: list[dict[str, Any]]
) -> Reply:
    console.print(f"[bold]question[/bold]  {question}")
    console.print("[bold]answer[/bold]    ", end="")
    reply = await ask(api, messages, show=lambda text: write(console, text))
    console.print("\n")
    return reply


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
    first = answers[0]
    console.print(Panel(first.text, title=BURST[0][0], title_align="left", width=min(console.width, 100)))
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
    """Held-out digits from PNG and JPEG files: one by one, then all in one batch."""
    console.rule("[bold]Images: a classifier")
    files = sorted(folder.iterdir())
    shown = table("handwritten digits that training never saw", "file", "is", "answer", "score", "time")
    right = 0
    for file in files:
        began = time.perf_counter()
        ((label, score),) = await _labels(api, [file])
        milliseconds = (time.perf_counter() - began) * 1e3
        truth = file.stem.split("-")[1]
        right += label == truth
        mark = "[green]✓[/green]" if label == truth else "[red]✗[/red]"
        shown.add_row(file.name, truth, f"{label} {mark}", f"{score:.3f}", f"{milliseconds:.1f} ms")
    console.print(shown)
    began = time.perf_counter()
    await _labels(api, files)
    milliseconds = (time.perf_counter() - began) * 1e3
    console.print(
        f"{right} of {len(files)} right; all {len(files)} in one request: {milliseconds:.1f} ms, "
        f"{milliseconds / len(files):.1f} ms an image\n"
    )
    return right == len(files)


async def _labels(api: AsyncOpenAI, files: list[Path]) -> list[tuple[str, float]]:
    """The best label of each picture and its score. OpenAI has no such endpoint: it is posted by its path."""
    pictures = [f"data:;base64,{base64.b64encode(file.read_bytes()).decode()}" for file in files]
    told: Any = await api.post("/images/classifications", cast_to=object, body={"input": pictures})
    best = [one["labels"][0] for one in told["data"]]
    return [(one["label"], one["score"]) for one in best]


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
