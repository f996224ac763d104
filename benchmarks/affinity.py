"""Makes the table "The gateway: prefix affinity": chats over two servers, by their beginnings and in turn.

    python -m benchmarks.affinity
    python -m benchmarks.affinity --chats 16

Each rule asks the same chats of fresh servers. Together 36 chats are larger than the
KV cache of one server and smaller than that of both: by their beginnings each server keeps its own, in turn
each one needs them all.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.common import pooled, run_command, serving
from benchmarks.tables import make_table
from trimodal.client import Client, Message
from trimodal.client.timing import percentile
from trimodal.server.options import ServerOptions

SERVERS = 2
# The first message is a text to talk about, the others are questions.
FIRST_WORDS, NEXT_WORDS, ANSWER_TOKENS = 450, 20, 16
WORDS = ("stack", "queue", "tree", "graph", "list", "loop", "function", "lambda", "class", "memory", "thread")


@dataclass
class PrefixHits:
    """How a rule chose servers: tokens of all prompts but each chat's first, and seconds to first text."""

    rule: str
    prompt: int = 0
    cached: int = 0
    ttft: list[float] = field(default_factory=list)

    @property
    def hit_rate(self) -> float:
        return self.cached / self.prompt if self.prompt else 0.0


async def talk(
    rule: str, client_of: Callable[[int], Client], *, chats: int, turns: int, at_once: int, seed: int = 1
) -> PrefixHits:
    """All chats take a turn, `at_once` of them together, then the next, in another order each time.

    Args:
        client_of: by the number of the chat.
        seed: of the texts.
    """
    found = PrefixHits(rule)
    rng = random.Random(seed)
    talks: list[list[Message]] = [[] for _ in range(chats)]
    room = asyncio.Semaphore(at_once)

    async def ask(number: int, counted: bool) -> None:
        async with room:
            stream = client_of(number).stream(messages=talks[number], max_tokens=ANSWER_TOKENS)
            answer = await stream.answer()
        if counted:
            found.prompt += answer.usage.prompt
            found.cached += answer.usage.cached
            found.ttft.append(answer.timing.ttft or answer.timing.latency)  # no text: until its end
        talks[number].append({"role": "assistant", "content": answer.text})

    for turn in range(turns):
        order = random.Random(turn).sample(range(chats), chats)
        for number in order:
            words = rng.choices(WORDS, k=NEXT_WORDS if turn else FIRST_WORDS)
            talks[number].append({"role": "user", "content": " ".join(words)})
        await asyncio.gather(*(ask(number, turn > 0) for number in order))
    return found


def table_of(title: str, rows: Iterable[PrefixHits]) -> Table:
    """A row for each rule."""
    table = make_table(title, "server chosen|prompts|tokens|of them cached|TTFT p50 (ms)|p99 (ms)")
    for one in rows:
        times = (f"{1e3 * (percentile(one.ttft, percent) or 0.0):.1f}" for percent in (50, 99))
        table.add_row(one.rule, str(len(one.ttft)), f"{one.prompt:,}", f"{one.hit_rate:.1%}", *times)
    return table


async def measure(chats: int, turns: int, changes: dict[str, str]) -> list[PrefixHits]:
    """Asks by each rule, of fresh servers. Raises: OperatorError when a server cannot start."""
    found = []
    for rule in ("in turn", "by beginning"):
        async with AsyncExitStack() as stack:
            options = [ServerOptions.on_free_ports("llm", changes={"llm": changes}) for _ in range(SERVERS)]
            started = [await stack.enter_async_context(serving(one)) for one in options]
            clients = [client for _, client in started]
            if rule == "by beginning":
                clients = [await stack.enter_async_context(pooled([server for server, _ in started]))]
            turn = itertools.cycle(clients)
            found.append(
                await talk(rule, lambda _, turn=turn: next(turn), chats=chats, turns=turns, at_once=4)  # type: ignore[misc]
            )
    return found


def main(
    chats: Annotated[int, typer.Option(min=2, help="chats that go on side by side")] = 36,
    turns: Annotated[int, typer.Option(min=2, help="questions of each chat")] = 5,
    fake: Annotated[bool, typer.Option("--fake", help="the fake engine")] = False,
) -> None:
    """Measures what prefix affinity saves."""
    changes = {"engine": "fake", "fake_step_ms": "1", "max_prompt_tokens": "16000"} if fake else {}
    found = asyncio.run(measure(chats, turns, changes))
    Console(highlight=False).print(table_of(f"chats over {SERVERS} servers", found))


if __name__ == "__main__":
    run_command(main)
