"""Runs the cases of a plan on all sides, which take turns round by round: what drifts in all cancels out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from trimodal.bench.load.generator import LoadRun, Send, run
from trimodal.bench.load.plan import Case, LoadPlan
from trimodal.bench.load.statistics import Summary, summarise

# Runs one round of a case.
Side = Callable[[Case, int], Awaitable[LoadRun]]


@dataclass(frozen=True)
class Result:
    """The rounds of one case on one side. `part`: the kind of requests that it is of; empty: all."""

    case: Case
    side: str
    runs: Sequence[LoadRun]
    summary: Summary
    part: str = ""

    @property
    def label(self) -> str:
        return f"{self.side} {self.part}".strip()


def sending(plan: LoadPlan, send: Callable[[Case, int], Send], stop: asyncio.Event | None = None) -> Side:
    """A side that the generator sends to.

    Args:
        send: of the case and the round: what sends a request.
    """

    async def side(case: Case, number: int) -> LoadRun:
        return await run(
            send(case, number),
            case.arrivals(plan.seed + number),
            seconds=plan.duration,
            requests=plan.requests,
            warmup=plan.warmup,
            max_in_flight=plan.max_in_flight,
            drain_s=plan.timeout + plan.lasts + 5.0,
            stop=stop,
        )

    return side


async def run_cases(
    plan: LoadPlan, sides: Mapping[str, Side], tell: Callable[[str], object] = lambda text: None
) -> list[Result]:
    """All cases; of each all rounds, of each all sides. A run that was stopped is the last one.

    Args:
        tell: takes a line of progress.
    """
    results: list[Result] = []
    for case in plan.cases:
        runs: dict[str, list[LoadRun]] = {}
        stopped = False
        for number in range(plan.rounds):
            for side, measure in sides.items():
                if not stopped:
                    tell(f"{case.name}, {side}, round {number + 1} of {plan.rounds}")
                    done = await measure(case, number)
                    runs.setdefault(side, []).append(done)
                    stopped = bool(done.stopped)
        results += [Result(case, side, done, summarise(done, plan.slo)) for side, done in runs.items()]
        if stopped:
            break
    return results
