"""Makes the table "Prompts that are given up": chats alone, and beside clients that leave long prompts.

    python -m benchmarks.llm.abandoned

Chats ask one short fresh question after the other. The others send a prompt of thousands of tokens, fresh
too, and leave at a random moment. Both runs are of one server; the answers to a few questions are compared
before the first and after the last prompt that was given up.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from contextlib import suppress
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.common import run_command, serving
from benchmarks.tables import NARROW, make_table
from trimodal.build_support import operator_errors
from trimodal.client import Client
from trimodal.client.timing import percentile
from trimodal.errors import ServerError
from trimodal.server.options import ServerOptions

WORDS = ("river", "stone", "window", "market", "garden", "letter", "winter", "bridge", "music", "doctor")
QUESTIONS = ("What is the capital of Japan?", "Name three colours.", "Why is the sky blue?")
CHAT_WORDS, CHAT_TOKENS, PATIENCE_S = 100, 24, 3.0


def text(rng: random.Random, words: int) -> str:
    """A fresh text; with these words one token a word."""
    return " ".join(rng.choices(WORDS, k=words))


async def chat(client: Client, rng: random.Random, count: int) -> list[float]:
    """Seconds to the first text of so many chats, one after the other."""
    answers = [
        await client.complete(text(rng, CHAT_WORDS), max_tokens=CHAT_TOKENS, temperature=0.0)
        for _ in range(count)
    ]
    return [answer.timing.ttft or answer.timing.latency for answer in answers]


async def leave(client: Client, rng: random.Random, words: int, left: itertools.count[int]) -> None:
    """Sends one long prompt after the other, and waits for the answer of none."""
    while True:
        async with client.stream(text(rng, words), max_tokens=64) as stream:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stream.answer(), rng.uniform(0, PATIENCE_S))
        next(left)


async def measure(chats: int, each: int, leaving: int, words: int, numerics: str) -> None:
    options = ServerOptions.on_free_ports("llm", changes={"llm": {"numerics": numerics}})
    left = itertools.count()
    table = make_table(f"numerics {numerics}", "|chats|TTFT p50|TTFT p95|prompts given up", **NARROW)
    async with serving(options) as (_, client):
        answers = [(await client.complete(one, max_tokens=32, temperature=0.0)).text for one in QUESTIONS]
        p95 = []
        for others in (0, leaving):
            tasks = [
                asyncio.create_task(leave(client, random.Random(f"leaves {number}"), words, left))
                for number in range(others)
            ]
            talks = [chat(client, random.Random(f"chat {others} {number}"), each) for number in range(chats)]
            ttfts = list(itertools.chain.from_iterable(await asyncio.gather(*talks)))
            ended = [task.exception() for task in tasks if task.done()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if ended:  # as a prompt that is refused: the chats would have been nearly alone
                raise ServerError(f"a client that leaves is not served: {ended[0]}")
            p50, last = (percentile(ttfts, one) or 0.0 for one in (50, 95))
            p95.append(last)
            side = f"beside {others} that leave" if others else "alone"
            given_up = str(next(left)) if others else "0"
            table.add_row(side, str(len(ttfts)), f"{1e3 * p50:.0f} ms", f"{1e3 * last:.0f} ms", given_up)
        again = [(await client.complete(one, max_tokens=32, temperature=0.0)).text for one in QUESTIONS]
    Console(highlight=False).print(table)
    equal = sum(map(str.__eq__, answers, again))
    print(f"p95 is {p95[1] / p95[0]:.2f} times that without; {equal} of {len(again)} answers as before")


def main(
    chats: Annotated[int, typer.Option(min=1, help="that ask at the same time")] = 4,
    each: Annotated[int, typer.Option(min=1, help="questions of each")] = 25,
    leaving: Annotated[int, typer.Option(min=1, help="clients that leave")] = 8,
    words: Annotated[int, typer.Option(min=1, help="tokens of a prompt that is given up")] = 4000,
    numerics: Annotated[str, typer.Option(help="fast, or reproducible: answers are equal")] = "fast",
) -> None:
    """Runs the chats twice."""
    with operator_errors():
        asyncio.run(measure(chats, each, leaving, words, numerics))


if __name__ == "__main__":
    run_command(main)
