"""Shows the cache in the demo: the same question, one that means the same, and a near one that does not."""

from __future__ import annotations

import asyncio

from rich import box
from rich.console import Console
from rich.table import Table

from trimodal.client import Client

# Question → where its answer is to come from.
QUESTIONS = (
    ("what is a tuple?", ""),
    ("what is a tuple?", "exact"),
    ("could you tell me what a tuple is?", "semantic"),
    ("what is a slice?", ""),
)
MAX_TOKENS = 120
_KEPT_S = 0.5
"""An answer is stored behind the request's back."""


async def cache(client: Client, console: Console, topics: dict[str, str]) -> bool:
    """Asks, shows where each answer came from, and says if that was right."""
    table = Table(
        title="the cache: a question, again, in other words, and another one",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        title_style="italic",
    )
    for column in ("question", "from", "similarity", "first text"):
        table.add_column(column, justify="left" if column == "question" else "right")
    good = True
    answers: list[str] = []
    for question, source in QUESTIONS:
        # A slice was asked for before, among the sixteen: what is shown here is a new question.
        control = "no-cache" if source == "" else None
        answer = await client.complete(question, max_tokens=MAX_TOKENS, cache_control=control)
        answers.append(answer.text)
        note = answer.note
        likeness = f"{note.similarity:.3f}" if note.cache else ""
        ttft = answer.timing.ttft or 0.0
        table.add_row(question, note.cache or "the model", likeness, f"{ttft * 1e3:.1f} ms")
        good &= note.cache == source and answer.finish_reason == "stop"
        await asyncio.sleep(_KEPT_S)
    console.print(table)
    return good and answers == [topics["tuple"]] * 3 + [topics["slice"]]
