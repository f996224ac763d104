"""Makes results of load runs on a virtual clock: a server of known delays, asked at rising rates."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from tests.doubles.virtual_clock import run_virtually
from trimodal.bench.load.generator import Send
from trimodal.bench.load.plan import Case, LoadPlan
from trimodal.bench.load.records import Record
from trimodal.bench.load.rounds import Result, run_cases, sending
from trimodal.bench.targets.taking import taken
from trimodal.errors import Unavailable

TOKENS = 20


def answering(prefill: float, step: float, at_once: int, refuse_beyond: int = 10**6) -> Callable[..., Send]:
    """A server of streamed answers: so many at once, TTFT `prefill` without a queue, a gap of `step`."""

    def sender(case: Case, number: int) -> Send:
        room, rng = asyncio.Semaphore(at_once), random.Random(number)
        waiting = 0

        async def ask(record: Record) -> None:
            nonlocal waiting
            if waiting >= refuse_beyond:
                raise Unavailable("the queue is full")
            waiting += 1
            async with room:
                waiting -= 1
                await asyncio.sleep(prefill * (0.8 + 0.4 * rng.random()))
                record.piece()
                for _ in range(TOKENS - 1):
                    await asyncio.sleep(step * (0.9 + 0.2 * rng.random()))
                    record.piece()
                record.input_tokens, record.output_tokens = 64, TOKENS

        return lambda _: taken(ask)

    return sender


def results_of(plan: LoadPlan, **sides: Callable[..., Send]) -> list[Result]:
    """Runs the plan on these sides."""

    async def main() -> list[Result]:
        return await run_cases(plan, {name: sending(plan, side) for name, side in sides.items()})

    return run_virtually(main())
