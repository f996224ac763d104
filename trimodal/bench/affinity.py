"""Measures what prefix affinity saves: chats over two servers, by their beginnings and in turn.

    python -m trimodal.bench.affinity

Both ways ask the same chats of fresh servers with the demo's engine. Together the chats are larger than the
KV cache of one server and smaller than that of both: by their beginnings each server keeps its own, in turn
each one needs them all.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Annotated

import typer
from rich.console import Console

from trimodal.bench.common.closed_loop import milliseconds
from trimodal.bench.common.serving import serving
from trimodal.client import Client, Message
from trimodal.client.transports.base import Timeouts
from trimodal.client.transports.grpc import GrpcTransport
from trimodal.gateway.upstreams.pool import Upstreams
from trimodal.report.console import make_table
from trimodal.server.options import ServerOptions

SERVERS = 2
CHATS, TURNS, AT_ONCE = 36, 5, 4
# The first message is a text to talk about, the others are questions.
FIRST_WORDS, NEXT_WORDS = 280, 20
TOKENS = 16
_WORDS = (
    "stack",
    "queue",
    "tree",
    "graph",
    "list",
    "loop",
    "function",
    "lambda",
    "class",
    "memory",
    "thread",
)


@dataclass
class Way:
    """One way to choose a server: tokens of all prompts but each chat's first, and seconds to first text."""

    name: str
    prompt: int = 0
    cached: int = 0
    ttft: list[float] = field(default_factory=list)

    @property
    def hit_rate(self) -> float:
        return self.cached / self.prompt if self.prompt else 0.0


async def measure(chats: int, turns: int, changes: dict[str, str]) -> list[Way]:
    """Asks both ways, each of fresh servers. Raises: OperatorError when a server cannot start."""
    return [await _ask(Way(name), chats, turns, changes) for name in ("in turn", "by beginning")]


async def _ask(way: Way, chats: int, turns: int, changes: dict[str, str]) -> Way:
    async with AsyncExitStack() as stack:
        options = [ServerOptions.on_free_ports("llm", changes={"llm": changes}) for _ in range(SERVERS)]
        started = [await stack.enter_async_context(serving(one)) for one in options]
        if way.name == "in turn":
            turn = itertools.cycle(client for _, client in started)
            choose: Callable[[], Client] = lambda: next(turn)  # noqa: E731
        else:
            addresses = [server.grpc_url for server, _ in started]
            pool = Upstreams(addresses, lambda address: GrpcTransport(address, Timeouts()))
            together = await stack.enter_async_context(Client(transport=pool))
            pool.start(Timeouts())
            choose = lambda: together  # noqa: E731
        await _talk(way, choose, chats, turns)
    return way


async def _talk(way: Way, choose: Callable[[], Client], chats: int, turns: int) -> None:
    """All chats take a turn, some at once, then the next."""
    generator = random.Random(1)
    talks: list[list[Message]] = [[] for _ in range(chats)]
    room = asyncio.Semaphore(AT_ONCE)

    async def ask(talk: list[Message], counted: bool) -> None:
        async with room:
            stream = choose().stream(messages=talk, max_tokens=TOKENS)
            answer = await stream.answer()
        if counted:
            way.prompt += answer.usage.prompt
            way.cached += answer.usage.cached
            assert answer.timing.ttft is not None
            way.ttft.append(answer.timing.ttft)
        talk.append({"role": "assistant", "content": answer.text})

    for number in range(turns):
        order = random.Random(number).sample(talks, chats)
        for talk in order:
            words = generator.choices(_WORDS, k=NEXT_WORDS if number else FIRST_WORDS)
            talk.append({"role": "user", "content": " ".join(words)})
        await asyncio.gather(*(ask(talk, number > 0) for talk in order))


def show(ways: list[Way], console: Console) -> None:
    """Prints a row for each way."""
    table = make_table(
        f"chats over {SERVERS} servers", "server chosen|prompts|tokens|of them cached|TTFT p50 (ms)|p99 (ms)"
    )
    for way in ways:
        table.add_row(
            way.name,
            str(len(way.ttft)),
            f"{way.prompt:,}",
            f"{way.hit_rate:.1%}",
            f"{milliseconds(way.ttft, 50):.1f}",
            f"{milliseconds(way.ttft, 99):.1f}",
        )
    console.print(table)
    apart, together = ways
    if apart.hit_rate:
        console.print(f"hit rate: {together.hit_rate / apart.hit_rate:.2f} times that in turn")


def main(
    chats: Annotated[int, typer.Option(min=2, help="chats that go on side by side")] = CHATS,
    turns: Annotated[int, typer.Option(min=2, help="questions of each chat")] = TURNS,
) -> None:
    """Measures what prefix affinity saves."""
    show(asyncio.run(measure(chats, turns, {})), Console(highlight=False))


if __name__ == "__main__":
    typer.run(main)
