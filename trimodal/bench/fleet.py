"""Checks the simulator of `trimodal plan fleet` against real servers with the fake engine.

    python -m trimodal.bench.fleet --json fleet.json

One server is measured alone: closed loops give its step times, prompts of two lengths what a prompt token and
a request cost. From this description, not from the engine's settings, the simulator then plays the same
requests at the same times that one, two and three real servers behind the gateway's balancer are asked.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from trimodal.bench.common.serving import serving
from trimodal.bench.load.arrivals import Closed, poisson
from trimodal.bench.load.generator import Run, run
from trimodal.bench.load.records import OK, Record
from trimodal.bench.load.statistics import summarise
from trimodal.bench.report.files import write_json
from trimodal.bench.targets.taking import Taking, taken
from trimodal.client import Client, Message
from trimodal.client.transports.base import Timeouts
from trimodal.client.transports.grpc import GrpcTransport
from trimodal.errors import OperatorError, ServerError
from trimodal.gateway.upstreams.pool import Upstreams
from trimodal.plan.fleet.from_bench import Point, describe_replica
from trimodal.plan.fleet.outcome import Objective, Outcome
from trimodal.plan.fleet.replica import ReplicaFigures
from trimodal.plan.fleet.simulation import simulate
from trimodal.plan.fleet.spec import FleetSpec
from trimodal.plan.fleet.workload import Arrival
from trimodal.report.console import make_table
from trimodal.server.options import ServerOptions

SLOTS, BLOCKS, STEP_TOKENS, QUEUE = 8, 512, 256, 4096
# Steps so long that two cores drive three servers: their processors are not what is measured.
ENGINE = {
    "engine": "fake",
    "fake_answer": "the quick brown fox jumps over the lazy dog ",
    "fake_step_ms": "40",
    "fake_prefill_us": "200",
    "max_num_seqs": str(SLOTS),
    "num_kv_blocks": str(BLOCKS),
    "max_num_batched_tokens": str(STEP_TOKENS),
    "max_queue": str(QUEUE),
    "tiers": "",
    "scheduler": "fifo",
}
LOADS = (0.3, 0.5, 0.7, 0.8, 0.9)
TTFT_S, TPOT_S = 0.5, 0.08  # what a good request keeps
DOCUMENTS, DOCUMENT_CHARS = 24, 320
QUESTION_CHARS = (20, 200)
ANSWER_TOKENS = (10, 40)
_CALIBRATION_S = 6.0


@dataclass(frozen=True)
class Asked:
    """One request: a chat about a document, which is its beginning, and how long its answer is."""

    at: float
    document: int
    messages: Sequence[Message]
    tokens: int


@dataclass(frozen=True)
class Compared:
    """One load on so many servers: TTFT in milliseconds and good requests a second, real and simulated."""

    servers: int
    load: float
    rate: float
    requests: int
    hit_rate: tuple[float, float]
    p50: tuple[float, float]
    p95: tuple[float, float]
    goodput: tuple[float, float]

    def error(self, name: str) -> float:
        """How much more the simulator says, as a share of what was measured."""
        real, simulated = getattr(self, name)
        return (simulated - real) / real if real else math.nan


def questions(rate: float, seconds: float, seed: str) -> list[Asked]:
    """What is asked in so many seconds; other seeds ask about other documents."""
    rng = random.Random(seed)
    documents = [_text(rng, DOCUMENT_CHARS) for _ in range(DOCUMENTS)]
    asked: list[Asked] = []
    for at in poisson(rate, rng.randrange(1 << 30)):
        if at >= seconds:
            return asked
        number = int(DOCUMENTS * rng.random() ** 1.5)  # some are asked about more than others
        messages: list[Message] = [
            {"role": "user", "content": documents[number]},
            {"role": "assistant", "content": "yes"},
            {"role": "user", "content": _text(rng, rng.randint(*QUESTION_CHARS))},
        ]
        asked.append(Asked(at, number, messages, rng.randint(*ANSWER_TOKENS)))
    return asked


async def measure(
    servers: Sequence[int],
    loads: Sequence[float],
    seconds: float,
    changes: Mapping[str, str],
    tell: Callable[[str], object],
) -> tuple[ReplicaFigures, list[Compared]]:
    """Measures one server, then plays every load on real and on simulated servers.

    Raises:
        OperatorError: a server cannot start, or nothing is answered.
    """
    async with AsyncExitStack() as stack:
        client, _ = await _started(stack, 1, changes)
        tell("one server alone")
        figures, most, shared = await calibrate(client)
    found = []
    for count in servers:
        async with AsyncExitStack() as stack:
            client, addresses = await _started(stack, count, changes)
            for load in loads:
                tell(f"{count} server(s), {load:.0%} of what they answer")
                rate = load * most * count
                asked = questions(rate, seconds, f"{count} {load}")
                real = await _ask(client, asked, seconds)
                trace = _trace(asked, real, shared)
                spec = FleetSpec(name=f"{count}", replica=figures, replicas=count, policy="affinity")
                simulated = simulate(spec, trace, Objective(TTFT_S, TPOT_S), addresses=addresses)
                found.append(_compare(count, load, rate, real, simulated, trace[-1].at))
    return figures, found


async def calibrate(client: Client) -> tuple[ReplicaFigures, float, int]:
    """The description of a server, the requests that it answers a second, and the tokens of a document."""
    points = []
    most = 0.0
    for clients, chars in ((1, 40), (1, 400), (SLOTS // 4, 200), (SLOTS // 2, 200), (SLOTS, 200)):
        rng = random.Random(f"{clients} {chars}")

        async def send(number: int, rng: random.Random = rng, chars: int = chars) -> Record:
            # Of one length clients would go in step, and no stream would meet the prompts of others.
            messages: list[Message] = [{"role": "user", "content": _text(rng, chars)}]
            return await _one(client, messages, rng.randint(*ANSWER_TOKENS))

        done = await run(send, Closed(clients), seconds=_CALIBRATION_S, warmup=1.0)
        points.append(_point(done))
        most = max(most, summarise(done).requests_per_s)
    given = {
        "max_num_seqs": SLOTS,
        "num_kv_blocks": BLOCKS,
        "max_num_batched_tokens": STEP_TOKENS,
        "max_queue": QUEUE,
    }
    figures = describe_replica(points, given, Path("calibration"))
    document: list[Message] = [
        {"role": "user", "content": "x" * DOCUMENT_CHARS},
        {"role": "assistant", "content": "yes"},
    ]
    whole = await client.complete(messages=[*document, {"role": "user", "content": "x"}], max_tokens=1)
    ending = await client.complete(messages=[{"role": "user", "content": "x"}], max_tokens=1)
    return figures, most, whole.usage.prompt - ending.usage.prompt


def show(figures: ReplicaFigures, rows: Sequence[Compared], console: Console) -> None:
    """Prints the description, a row for each load, and the largest errors."""
    steps = ", ".join(f"{batch}: {ms:.1f} ms" for batch, ms in figures.step_ms)
    console.print(
        f"steps {steps}; prompt token {figures.prefill_us:.0f} µs; overhead {figures.overhead_ms:.1f} ms"
    )
    table = make_table(
        "simulator against servers (real / simulated)",
        "servers|load|requests|hits|TTFT p50 (ms)|error|p95 (ms)|error|goodput /s|error",
    )
    for one in rows:
        table.add_row(
            str(one.servers),
            f"{one.load:.0%}",
            str(one.requests),
            f"{one.hit_rate[0]:.0%} / {one.hit_rate[1]:.0%}",
            *(
                text
                for name, places in (("p50", 0), ("p95", 0), ("goodput", 2))
                for text in (
                    " / ".join(f"{value:.{places}f}" for value in getattr(one, name)),
                    f"{one.error(name):+.1%}",
                )
            ),
        )
    console.print(table)
    for name, what in (("p50", "TTFT p50"), ("p95", "TTFT p95"), ("goodput", "goodput")):
        errors = [abs(one.error(name)) for one in rows]
        console.print(f"{what}: error {max(errors):.1%} at most, {sum(errors) / len(errors):.1%} on average")


async def _started(stack: AsyncExitStack, count: int, changes: Mapping[str, str]) -> tuple[Client, list[str]]:
    """A client of so many new servers behind the gateway's balancer, and their addresses."""
    llm = {**ENGINE, **changes}
    options = [ServerOptions.on_free_ports("llm", changes={"llm": llm}) for _ in range(count)]
    started = [await stack.enter_async_context(serving(one)) for one in options]
    addresses = [server.grpc_url for server, _ in started]
    pool = Upstreams(addresses, lambda url: GrpcTransport(url, Timeouts()))
    client = await stack.enter_async_context(Client(transport=pool))
    pool.start(Timeouts())
    await pool.looked()
    for _, own in started:  # the first request of a process takes longer
        await own.complete(messages=[{"role": "user", "content": "hello"}], max_tokens=4)
    return client, addresses


async def _ask(client: Client, asked: Sequence[Asked], seconds: float) -> Run:
    async def send(number: int) -> Record:
        return await _one(client, asked[number].messages, asked[number].tokens)

    done = await run(send, (one.at for one in asked), seconds=seconds)
    if not any(record.outcome == OK for record in done.records):
        raise ServerError(f"nothing was answered: {done.records[0].error if done.records else 'no request'}")
    return done


async def _one(client: Client, messages: Sequence[Message], tokens: int) -> Record:
    async def ask(taking: Taking) -> None:
        stream = client.stream(messages=messages, max_tokens=tokens)
        async for delta in stream:
            if delta.text:
                taking.piece()
            usage = stream.usage
            taking.input_tokens, taking.cached_tokens = usage.prompt, usage.cached
            taking.output_tokens = usage.completion

    return await taken(ask)


def _trace(asked: Sequence[Asked], real: Run, shared: int) -> list[Arrival]:
    """The same requests for the simulator, with the prompt tokens that the server counted.

    The document's text is the prefix: the gateway knows a chat by its first message.
    """
    tokens = {record.number: record.input_tokens for record in real.records}
    return [
        Arrival(one.at, tokens[number], one.tokens, one.messages[0]["content"], shared)
        for number, one in enumerate(asked)
        if tokens.get(number)
    ]


def _point(done: Run) -> Point:
    found = summarise(done)
    tpot, ttft = (found.metrics[name].percentiles["p50"].value / 1e3 for name in ("tpot_ms", "ttft_ms"))
    computed = found.input_tokens_per_s * (1 - (found.cached_share or 0.0))
    batch = found.output_tokens_per_s * tpot
    return Point(batch, tpot, ttft, computed / found.requests_per_s, computed, found.in_flight)


def _compare(
    servers: int, load: float, rate: float, real: Run, simulated: Outcome, seconds: float
) -> Compared:
    found = summarise(real)
    ttft = found.metrics["ttft_ms"].percentiles
    good = sum(
        one.outcome == OK and (one.ttft or math.inf) <= TTFT_S and (one.tpot or 0.0) <= TPOT_S
        for one in real.records
    )
    return Compared(
        servers,
        load,
        rate,
        len(real.records),
        (found.cached_share or 0.0, simulated.hit_rate),
        (ttft["p50"].value, simulated.ttft_ms["p50"]),
        (ttft["p95"].value, simulated.ttft_ms["p95"]),
        (good / seconds, simulated.good / seconds),
    )


def _text(rng: random.Random, chars: int) -> str:
    return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=chars))


def main(
    servers: Annotated[list[int], typer.Option(min=1, max=8, help="so many; repeatable")] = [1, 2, 3],  # noqa: B006
    load: Annotated[list[float], typer.Option(min=0.05, max=2, help="of what they answer")] = list(LOADS),  # noqa: B006, B008
    seconds: Annotated[float, typer.Option(min=2, max=3600, help="of each load")] = 40.0,
    json_: Annotated[Path | None, typer.Option("--json", help="file for the figures")] = None,
) -> None:
    """Checks the simulator against real servers."""
    console = Console(highlight=False)
    told: Callable[[str], object] = lambda text: console.print(text, style="dim")  # noqa: E731
    try:
        figures, rows = asyncio.run(measure(servers, load, seconds, {}, told))
    except OperatorError as error:
        console.print(str(error))
        raise typer.Exit(1) from None
    show(figures, rows, console)
    if json_:
        cases: list[dict[str, Any]] = [asdict(row) for row in rows]
        write_json(json_, {"replica": figures.model_dump(), "seconds": seconds, "cases": cases})


if __name__ == "__main__":
    typer.run(main)
