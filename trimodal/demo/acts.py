"""The acts of the demo: each asks a running server, shows what came out, and says if it was right.

They measure with the client's own definitions: send to first text, gaps between deltas.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from trimodal.client import Answer, Client, Message
from trimodal.client.timing import percentile

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


async def text(client: Client, console: Console, topics: dict[str, str]) -> bool:
    """Two streamed answers with a shared system prompt, then sixteen questions at once."""
    console.rule("[bold]Text: a language model that streams")
    handbook = HANDBOOK * 4
    answers = []
    for question, _ in BURST[:2]:
        messages: list[Message] = [
            {"role": "system", "content": handbook},
            {"role": "user", "content": question},
        ]
        answers.append(await _streamed(client, console, question, messages))
    cold, warm = answers
    table = _table("same long system prompt twice", "", "first answer", "second answer")
    table.add_row("prompt tokens", str(cold.usage.prompt), str(warm.usage.prompt))
    table.add_row("of them from the prefix cache", str(cold.usage.cached), str(warm.usage.cached))
    table.add_row("time to first token (TTFT)", _ms(cold.timing.ttft), _ms(warm.timing.ttft))
    table.add_row("time per output token (TPOT)", *(_ms(answer.timing.tpot) for answer in answers))
    table.add_row("whole answer", *(_ms(answer.timing.latency) for answer in answers))
    console.print(table)
    good = all(_is_right(answer, topics[topic]) for answer, (_, topic) in zip(answers, BURST, strict=False))
    return good and await _burst(client, console, topics)


async def _streamed(client: Client, console: Console, question: str, messages: list[Message]) -> Answer:
    console.print(f"[bold]question[/bold]  {question}")
    console.print("[bold]answer[/bold]    ", end="")
    async with client.stream(messages=messages, max_tokens=120) as stream:
        async for delta in stream:
            # Plain writes: rich takes longer for a word than the engine, and would show up as latency.
            console.file.write(delta.text)
            console.file.flush()
    console.print("\n")
    return await stream.answer()


def _is_right(answer: Answer, text: str) -> bool:
    return answer.finish_reason == "stop" and answer.text == text


async def _burst(client: Client, console: Console, topics: dict[str, str]) -> bool:
    began = time.perf_counter()
    answers = await asyncio.gather(*(client.complete(question, max_tokens=120) for question, _ in BURST))
    seconds = time.perf_counter() - began
    tokens = sum(answer.usage.completion for answer in answers)
    ttft = [answer.timing.ttft for answer in answers if answer.timing.ttft is not None]
    tpot = [answer.timing.tpot for answer in answers if answer.timing.tpot is not None]
    table = _table(f"{len(BURST)} questions at once, one batch", "", "p50", "p99")
    table.add_row("time to first token (TTFT)", *(_ms(percentile(ttft, p)) for p in (50, 99)))
    table.add_row("time per output token (TPOT)", *(_ms(percentile(tpot, p)) for p in (50, 99)))
    table.add_row("all together", f"{tokens} tokens in {seconds:.2f} s", f"{tokens / seconds:.0f} tok/s")
    console.print(table)
    first = answers[0]
    console.print(Panel(first.text, title=BURST[0][0], title_align="left", width=min(console.width, 100)))
    return all(_is_right(answer, topics[topic]) for answer, (_, topic) in zip(answers, BURST, strict=True))


async def images(client: Client, console: Console, folder: Path) -> bool:
    """Held-out digits from PNG and JPEG files: one by one, then all in one batch."""
    console.rule("[bold]Images: a classifier")
    files = sorted(folder.iterdir())
    table = _table("handwritten digits that training never saw", "file", "is", "answer", "score", "time")
    right = 0
    for file in files:
        began = time.perf_counter()
        (predictions,) = await client.classify([file.read_bytes()])
        milliseconds = (time.perf_counter() - began) * 1e3
        truth, best = file.stem.split("-")[1], predictions[0]
        right += best.label == truth
        mark = "[green]✓[/green]" if best.label == truth else "[red]✗[/red]"
        table.add_row(file.name, truth, f"{best.label} {mark}", f"{best.score:.3f}", f"{milliseconds:.1f} ms")
    console.print(table)
    began = time.perf_counter()
    await client.classify([file.read_bytes() for file in files])
    milliseconds = (time.perf_counter() - began) * 1e3
    console.print(
        f"{right} of {len(files)} right; all {len(files)} in one request: {milliseconds:.1f} ms, "
        f"{milliseconds / len(files):.1f} ms an image\n"
    )
    return right == len(files)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, title_style="italic")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    return table


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:.1f} ms"
