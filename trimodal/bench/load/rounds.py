"""Runs the cases of a plan on all sides, which take turns round by round: what drifts in all cancels out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from trimodal.bench.load.generator import LoadRun, Send, run
from trimodal.bench.load.plan import Case, LoadPlan
from trimodal.bench.load.records import Record
from trimodal.bench.load.statistics import Summary, summarise

# Reads what the server counted before a round; what it returns reads again after it: what was counted in it.
Counted = Callable[[], Awaitable[Callable[[], Awaitable[Mapping[str, float]]]]]
# Runs one round of a case.
Side = Callable[[Case, int], Awaitable[LoadRun]]


@dataclass
class Result:
    """The rounds of one case on one side. `more`: what the server counted in the last one."""

    case: Case
    side: str
    runs: list[LoadRun] = field(default_factory=list)
    more: Mapping[str, float] = field(default_factory=dict)
    summary: Summary | None = None


def split(result: Result, kind_of: Callable[[int, Record], str]) -> dict[str, list[LoadRun]]:
    """The rounds of a result by kind of request; `kind_of`: of the round and the request."""
    found: dict[str, list[list[Record]]] = {}
    for number, done in enumerate(result.runs):
        for record in done.records:
            parts = found.setdefault(kind_of(number, record), [[] for _ in result.runs])
            parts[number].append(record)
    return {
        kind: [replace(done, records=tuple(part)) for done, part in zip(result.runs, parts, strict=True)]
        for kind, parts in found.items()
    }


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
            warmup=plan.warmup if plan.duration or plan.requests else 0.0,
            max_in_flight=plan.max_in_flight,
            drain_s=plan.timeout + plan.lasts + 5.0,
            stop=stop,
        )

    return side


async def run_cases(
    plan: LoadPlan,
    sides: Mapping[str, Side],
    *,
    counted: Counted | None = None,
    tell: Callable[[str], object] = lambda text: None,
) -> list[Result]:
    """All cases; of each all rounds, of each all sides. A run that was stopped is the last one.

    Args:
        counted: called before each round of the first side.
        tell: takes a line of progress.
    """
    results: list[Result] = []
    for case in plan.cases:
        found = [Result(case, side) for side in sides]
        for number in range(plan.rounds):
            for result in found:
                tell(f"{case.name}, {result.side}, round {number + 1} of {plan.rounds}")
                after = await counted() if counted and result is found[0] else None
                done = await sides[result.side](case, number)
                result.runs.append(done)
                if after:
                    result.more = await after()
                if done.stopped:
                    return _summed(plan, [*results, *found])
        results += found
    return _summed(plan, results)


def _summed(plan: LoadPlan, results: list[Result]) -> list[Result]:
    measured = [result for result in results if result.runs]
    for result in measured:
        result.summary = summarise(result.runs, plan.slo, cost_per_hour=plan.cost_per_hour, more=result.more)
    return measured
