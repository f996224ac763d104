"""Makes the table "The fleet simulator" of docs/benchmarks.md: `trimodal plan fleet` beside real servers.

    python -m benchmarks.simulator

One server with the fake engine is measured alone: closed loops give its step times, prompts of two lengths
what a prompt token and a request cost. From this description, not from the engine's settings, the simulator
then plays the same requests at the same times that one, two and three real servers behind the gateway's
balancer are asked.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.common import pooled, run_command, serving
from benchmarks.tables import make_table
from trimodal.bench.load.generator import Closed, poisson, run
from trimodal.bench.load.records import OK, Record
from trimodal.bench.load.statistics import summarise
from trimodal.bench.targets.llm import follow
from trimodal.bench.targets.taking import taken
from trimodal.client import Client, Message
from trimodal.errors import ServerError
from trimodal.plan.fleet.from_bench import describe_replica, read_point
from trimodal.plan.fleet.outcome import Objective
from trimodal.plan.fleet.simulation import simulate
from trimodal.plan.fleet.spec import FleetSpec, ReplicaFigures
from trimodal.plan.fleet.workload import Arrival
from trimodal.server.options import ServerOptions

SLOTS = 8
# Steps so long that two cores drive three servers: their processors are not what is measured.
ENGINE = {
    "engine": "fake",
    "fake_answer": "the quick brown fox jumps over the lazy dog ",
    "fake_step_ms": "40",
    "fake_prefill_us": "200",
    "max_num_seqs": str(SLOTS),
    "num_kv_blocks": "512",
    "max_num_batched_tokens": "256",
    "max_queue": "4096",
    "tiers": "",
    "scheduler": "fifo",
}
CALIBRATION, CALIBRATION_S = Path("calibration"), 6.0  # seconds of each closed loop
SERVERS, LOADS = (1, 2, 3), (0.3, 0.5, 0.7, 0.8, 0.9)
TTFT_S, TPOT_S = 0.5, 0.08  # what a good request keeps
DOCUMENTS, DOCUMENT_CHARS = 24, 320  # a document takes more than a step: chunked prefill is compared, too
QUESTION_CHARS = (20, 200)
ANSWER_TOKENS = (10, 40)
FIGURES = ("hit rate", "TTFT p50 (ms)", "TTFT p95 (ms)", "goodput /s")


@dataclass(frozen=True)
class ChatRequest:
    """A question about a document, which is the chat's beginning, and how long its answer is."""

    at: float
    messages: Sequence[Message]
    tokens: int


def requests_of(rate: float, seconds: float, seed: str) -> list[ChatRequest]:
    """What is asked in so many seconds; other seeds ask about other documents."""
    rng = random.Random(seed)
    documents = [_text(rng, DOCUMENT_CHARS) for _ in range(DOCUMENTS)]
    asked: list[ChatRequest] = []
    for at in poisson(rate, rng.randrange(1 << 30)):
        if at >= seconds:
            break
        document = documents[int(DOCUMENTS * rng.random() ** 1.5)]  # some are asked about more than others
        chat = _chat(document, _text(rng, rng.randint(*QUESTION_CHARS)))
        asked.append(ChatRequest(at, chat, rng.randint(*ANSWER_TOKENS)))
    return asked


def _chat(document: str, question: str) -> list[Message]:
    return [
        {"role": "user", "content": document},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": question},
    ]


def _text(rng: random.Random, chars: int) -> str:
    return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=chars))


async def started(stack: AsyncExitStack, count: int) -> tuple[Client, list[str]]:
    """A client of so many new servers behind the gateway's balancer, and their addresses."""
    options = [ServerOptions.on_free_ports("llm", changes={"llm": ENGINE}) for _ in range(count)]
    servers = [await stack.enter_async_context(serving(one)) for one in options]
    client = await stack.enter_async_context(pooled([server for server, _ in servers]))
    for _, own in servers:  # the first request of a process takes longer
        await own.complete(messages=[{"role": "user", "content": "hello"}], max_tokens=4)
    return client, [server.grpc_url for server, _ in servers]


async def send(client: Client, messages: Sequence[Message], tokens: int) -> Record:
    async def ask(record: Record) -> None:
        await follow(client.stream(messages=messages, max_tokens=tokens), record)

    return await taken(ask)


async def calibrate(client: Client, seconds: float) -> tuple[ReplicaFigures, float, int]:
    """The description of a server, the requests that it answers a second, and the tokens of a document."""
    points, most = [], 0.0
    for clients, chars in ((1, 40), (1, 400), (SLOTS // 4, 200), (SLOTS // 2, 200), (SLOTS, 200)):
        rng = random.Random(f"{clients} {chars}")

        async def ask(number: int, rng: random.Random = rng, chars: int = chars) -> Record:
            # Of one length clients would go in step, and no stream would meet the prompts of others.
            chat: list[Message] = [{"role": "user", "content": _text(rng, chars)}]
            return await send(client, chat, rng.randint(*ANSWER_TOKENS))

        found = summarise(await run(ask, Closed(clients), seconds=seconds, warmup=1.0))
        points.append(read_point(CALIBRATION, f"{clients} clients", asdict(found)))
        most = max(most, found.requests_per_s)
    names = ("max_num_seqs", "num_kv_blocks", "max_num_batched_tokens", "max_queue")
    given = {name: int(ENGINE[name]) for name in names}
    whole = await client.complete(messages=_chat("x" * DOCUMENT_CHARS, "x"), max_tokens=1)
    ending = await client.complete(messages=[{"role": "user", "content": "x"}], max_tokens=1)
    document = whole.usage.prompt - ending.usage.prompt
    return describe_replica(points, given, CALIBRATION), most, document


async def compare(
    client: Client,
    addresses: list[str],
    figures: ReplicaFigures,
    asked: Sequence[ChatRequest],
    document_tokens: int,
) -> dict[str, tuple[float, float]]:
    """FIGURES of the servers and of the simulation. Raises: ServerError: nothing is answered."""

    async def ask(number: int) -> Record:
        return await send(client, asked[number].messages, asked[number].tokens)

    real = await run(ask, (one.at for one in asked), requests=len(asked))
    tokens = {record.number: record.input_tokens for record in real.records if record.outcome == OK}
    if not tokens:
        raise ServerError("nothing was answered")
    # The document's text is the prefix: the gateway knows a chat by its first message.
    trace = [
        Arrival(one.at, tokens[number], one.tokens, one.messages[0]["content"], document_tokens)
        for number, one in enumerate(asked)
        if number in tokens
    ]
    spec = FleetSpec(name="servers", replica=figures, replicas=len(addresses), policy="affinity")
    simulated = simulate(spec, trace, Objective(TTFT_S, TPOT_S), addresses=addresses)
    found = summarise(real)
    ttft = found.metrics["ttft_ms"].percentiles
    good = sum(
        one.outcome == OK and (one.ttft or math.inf) <= TTFT_S and (one.tpot or 0.0) <= TPOT_S
        for one in real.records
    )
    pairs = (
        (found.cached_share or 0.0, simulated.hit_rate),
        (ttft["p50"], simulated.ttft_ms["p50"]),
        (ttft["p95"], simulated.ttft_ms["p95"]),
        (good / trace[-1].at, simulated.good / trace[-1].at),
    )
    return dict(zip(FIGURES, pairs, strict=True))


def relative_error(real: float, simulated: float) -> float | None:
    """How much the simulation is off; None: there is nothing to compare with, as a hit rate of 0."""
    if real == simulated:
        return 0.0
    return (simulated - real) / real if real else None


def shown(real: float, simulated: float) -> str:
    error = relative_error(real, simulated)
    return f"{real:.4g}, {simulated:.4g}, " + ("-" if error is None else f"{error:+.1%}")


async def show(seconds: float) -> None:
    """Measures one server, then plays every load on real and on simulated servers; prints rows and errors."""
    console = Console(highlight=False, width=140)
    columns = "|".join(("servers", "load", *FIGURES))
    table = make_table("simulator against servers: real, simulated, error", columns)
    errors: dict[str, list[float]] = {name: [] for name in FIGURES}
    async with AsyncExitStack() as stack:
        client, _ = await started(stack, 1)
        figures, most, document = await calibrate(client, CALIBRATION_S)
    for count in SERVERS:
        async with AsyncExitStack() as stack:
            client, addresses = await started(stack, count)
            for load in LOADS:
                asked = requests_of(load * most * count, seconds, f"{count} {load}")
                found = await compare(client, addresses, figures, asked, document)
                for name, pair in found.items():
                    if (error := relative_error(*pair)) is not None:
                        errors[name].append(abs(error))
                table.add_row(str(count), f"{load:.0%}", *(shown(*pair) for pair in found.values()))
    console.print(table)
    for name, values in errors.items():
        console.print(f"{name}: error {sum(values) / len(values):.1%} in the mean, {max(values):.1%} at most")


def main(seconds: Annotated[float, typer.Option(min=2, max=3600, help="of each load")] = 40.0) -> None:
    """Checks the simulator against real servers."""
    asyncio.run(show(seconds))


if __name__ == "__main__":
    run_command(main)
