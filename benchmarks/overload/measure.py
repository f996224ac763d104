"""Tests goodput under load beyond capacity: scheduled by deadline, and first in, first out.

Both sides are servers of the same engine with the same tiers; they take turns, level by level, with the very
same requests at the same times. The one orders and refuses by deadline, the other takes everything in and
serves it in order of arrival. Capacity is what a closed loop gets out of them, and is measured first.

A request is good when its first text came within its tier's `ttft_deadline_ms` and no gap was above its
`itl_bound_ms`. Goodput counts the part of it within the time in which requests were due: what is worked off
when no load comes any more would make a queue look like capacity.

Unless another engine is set it is the fake one at a set pace: what is measured is the scheduling. Its answers
end at random, as real ones do: no request says how long its answer will be.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trimodal.bench.bare.llm import served_settings
from trimodal.bench.load.generator import Closed, Send, run
from trimodal.bench.load.lengths import parse_lengths
from trimodal.bench.load.plan import Case, LoadPlan
from trimodal.bench.load.records import Record
from trimodal.bench.load.rounds import Result, run_cases, sending
from trimodal.bench.load.slo import Bound, Slo
from trimodal.bench.load.statistics import summarise
from trimodal.bench.report import TOKENS
from trimodal.bench.scenarios.server import LoadTest, Measurement, client_of, facts, server_under_test
from trimodal.bench.targets.llm import GrpcLlm
from trimodal.bench.targets.questions import Mix, Questions
from trimodal.errors import SettingsError
from trimodal.llm.engines.artefact import card_limits
from trimodal.llm.request.terms import MAX_TTFT_DEADLINE_MS
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tiers import Tier, read_tiers
from trimodal.runtimes.gpu_device import current_gpu

TIERS = Path(__file__).with_name("tiers.toml")
STOP = "."
PROMPT, MAX_TOKENS = "lognormal:64,0.6", "96"
ANSWER_TOKENS = 24  # of the fake engine, on average
PATIENCE_S = 30.0  # until a client gives up
_MAX_IN_FLIGHT = 8192
_MOST_REQUESTS = 500_000  # of all levels


@dataclass(frozen=True)
class OverloadScenario:
    """What `python -m benchmarks.overload` is told; times in seconds.

    Attributes:
        loads: offered, times the capacity.
        mix: tier → weight among the requests.
        capacity: requests a second; 0: it is measured.
        changes: parameters of both servers.
    """

    loads: tuple[float, ...]
    seconds: float
    mix: Mapping[str, float]
    tiers: Path = TIERS
    capacity: float = 0.0
    changes: Mapping[str, str] = field(default_factory=dict)


async def run_overload(
    scenario: OverloadScenario, stop: asyncio.Event | None, tell: Callable[[str], object]
) -> Measurement:
    """Measures the capacity, then each level on each side.

    Raises:
        OperatorError: a setting is wrong, or a server does not start.
    """
    tiers = read_tiers(scenario.tiers).tier
    if unknown := set(scenario.mix) - set(tiers):
        known = ", ".join(tiers)
        raise SettingsError(f"--mix: '{min(unknown)}' is none of the tiers in {scenario.tiers.name}: {known}")
    lengths = parse_lengths(PROMPT, "", 8), parse_lengths(MAX_TOKENS, "")
    questions = Questions(Mix(*lengths))
    asked: dict[str, Questions] = {}

    def questions_of(case: Case) -> Questions:
        """The same for both sides."""
        if case.name not in asked:
            asked[case.name] = questions.reseeded(case.name)
            asked[case.name].prepare(case.expected)
        return asked[case.name]

    def sender(target: GrpcLlm, load: str, **options: Any) -> Send:
        """Sends each request in its tier."""
        options |= target.options
        tiered = {tier: replace(target, options={**options, "tier": tier}) for tier in scenario.mix}
        return lambda number: tiered[tier_of(scenario.mix, load, number)].send(number)

    def level(target: GrpcLlm) -> Callable[[Case, int], Send]:
        return lambda case, _: sender(target.asking(questions_of(case)), case.name)

    async with AsyncExitStack() as stack:
        targets: dict[str, GrpcLlm] = {}
        measured: dict[str, float] = {}
        for name in ("deadline", "fifo"):
            test = LoadTest(LoadPlan(timeout=PATIENCE_S), changes={"llm": _changes(scenario, name)})
            server = await stack.enter_async_context(server_under_test(test, "llm"))
            client = await stack.enter_async_context(client_of(test, server))
            settings = served_settings(server.models["llm"])
            options = {"stop": STOP} if settings.engine == "fake" else {}
            targets[name] = GrpcLlm(client, questions, timeout=PATIENCE_S, options=options)
            await questions.calibrate(targets[name].count)
            # Also what the deadline side learns its engine's speed from.
            patient = sender(targets[name], "capacity", ttft_deadline_ms=MAX_TTFT_DEADLINE_MS)
            measured[name] = await _capacity(patient, settings, scenario.seconds)
        capacity = scenario.capacity or max(measured.values())
        plan = _plan(scenario, capacity)
        sides = {name: sending(plan, level(target), stop) for name, target in targets.items()}
        results = await run_cases(plan, sides, tell)
    loops = ", ".join(f"{name} {rate:.2f}" for name, rate in measured.items())
    more = [("capacity", f"{capacity:.2f} requests/s; closed loop: {loops}")]
    results = by_tier(results, capacity, tiers, lambda case, number: tier_of(scenario.mix, case.name, number))
    changed = replace(test, plan=plan, changes={"llm": scenario.changes})
    return Measurement("Overload", TOKENS, results, facts(changed, server, more))


def _plan(scenario: OverloadScenario, capacity: float) -> LoadPlan:
    """The levels as rates. Raises: SettingsError: they are more than a client can send."""
    rates = tuple(capacity * load for load in scenario.loads)
    if sum(rates) * scenario.seconds > _MOST_REQUESTS:
        raise SettingsError(f"these levels make over {_MOST_REQUESTS} requests: take fewer --seconds")
    try:
        return LoadPlan(
            "poisson", rates, seconds=scenario.seconds, max_in_flight=_MAX_IN_FLIGHT, timeout=PATIENCE_S
        )
    except SettingsError as error:  # of an option that is not there
        told = str(error).removeprefix("--rate ")
        raise SettingsError(f"--load, times the capacity of {capacity:g} requests/s: {told}") from None


def tier_of(mix: Mapping[str, float], load: str, number: int) -> str:
    """The tier of a request, drawn by the weights; the same for what sends it and what judges it."""
    return random.Random(f"tier {load} {number}").choices(list(mix), list(mix.values()))[0]


async def _capacity(send: Send, settings: LlmSettings, seconds: float) -> float:
    """Answers a second of a closed loop in which there is always one that waits for a slot."""
    gpu = current_gpu()
    batch = settings.max_num_seqs or card_limits([gpu] if gpu else []).max_num_seqs
    seconds = min(15.0, max(1.0, seconds / 2))
    done = await run(send, Closed(2 * batch), seconds=seconds, warmup=seconds / 4)
    return summarise(done).requests_per_s


def by_tier(
    results: Sequence[Result], capacity: float, tiers: Mapping[str, Tier], tier_of: Callable[[Case, int], str]
) -> list[Result]:
    """Each result, and its tiers behind it, judged by their own bounds; its goodput is the sum of theirs.

    Args:
        tier_of: of a case and the number of a request.
    """
    found = []
    for result in results:
        case = replace(result.case, name=f"{result.case.size / capacity:.3g}×")

        def part_of(record: Record, case: Case = result.case) -> str:
            return tier_of(case, record.number)

        parts = split(replace(result, case=case), part_of, lambda tier: slo_of(tiers[tier]))
        goodput = sum(part.summary.goodput or 0.0 for part in parts)
        good = sum((part.summary.good_share or 0.0) * part.summary.requests for part in parts)
        share = good / max(1, result.summary.requests)
        summary = replace(result.summary, goodput=goodput, good_share=share)
        found += [replace(result, case=case, summary=summary), *parts]
    return found


def slo_of(tier: Tier) -> Slo:
    """A tier's bounds as objectives of requests; without any, every answered one is good."""
    bounds = [Bound("ttft", tier.ttft_deadline_ms or math.inf), Bound("itl", tier.itl_bound_ms or math.inf)]
    return Slo(tuple(bounds))


def fake_answer(mean: int, sentences: int = 40) -> str:
    """Makes a script for the fake engine: a prompt's answer begins at random in it and ends at a STOP.

    Its sentences' lengths are exponential, which has no memory: so are those of the answers, whatever
    part of a sentence they begin in.

    Args:
        mean: tokens of an answer, about; the fake engine's tokens are bytes.
    """
    shares = [(index + 0.5) / sentences for index in range(sentences)]
    lengths = [max(1, round(-mean * math.log(1 - share))) for share in shares]
    rng = random.Random(0)
    rng.shuffle(lengths)
    return "".join("".join(rng.choices("abcdefghij", k=length)) + STOP for length in lengths)


def _changes(scenario: OverloadScenario, scheduler: str) -> dict[str, str]:
    """Parameters of a side; those that were given win."""
    changes = {"tiers": str(scenario.tiers.resolve())}
    if scenario.changes.get("engine", "fake") == "fake":
        changes |= {
            "engine": "fake",
            "fake_step_ms": "25",
            "fake_prefill_us": "100",
            "fake_answer": fake_answer(ANSWER_TOKENS),
            "max_num_seqs": "8",
            "apply_chat_template": "false",
        }
    changes |= dict(scenario.changes)
    # First in, first out is measured as it is without any admission: its queue has no end.
    longest = "1000000" if scheduler == "fifo" else changes.get("max_queue", "256")
    return changes | {"max_queue": longest, "scheduler": scheduler}


def split(result: Result, part_of: Callable[[Record], str], slo_of: Callable[[str], Slo]) -> list[Result]:
    """The parts of a result, each judged by objectives of its own."""
    found = []
    for part in sorted({part_of(record) for done in result.runs for record in done.records}):
        runs = [
            replace(done, records=tuple(one for one in done.records if part_of(one) == part))
            for done in result.runs
        ]
        found.append(replace(result, runs=runs, summary=summarise(runs, slo_of(part)), part=part))
    return found
