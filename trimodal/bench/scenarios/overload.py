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
from trimodal.bench.load.arrivals import Closed
from trimodal.bench.load.generator import run
from trimodal.bench.load.lengths import parse_lengths
from trimodal.bench.load.plan import Case, LoadPlan
from trimodal.bench.load.rounds import Result, run_cases, sending, split
from trimodal.bench.load.slo import Bound, Slo
from trimodal.bench.load.statistics import Rates, summarise
from trimodal.bench.scenarios.server import LoadTest, client_of, server_under_test
from trimodal.bench.targets.llm import GrpcLlm
from trimodal.bench.targets.questions import Mix, Questions, read_lines
from trimodal.client.timing import percentile
from trimodal.errors import SettingsError
from trimodal.llm.engines.artefact import card_limits
from trimodal.llm.request.terms import MAX_TTFT_DEADLINE_MS
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tiers import Tier, read_tiers
from trimodal.report.plots import COLOURS, save
from trimodal.runtimes.gpu_device import current_gpu

TIERS = Path(__file__).with_name("tiers.toml")
SCHEDULERS = ("deadline", "fifo")
STOP = "."
GOODPUT_KEPT = 0.9  # at the highest load, of the peak
REFUSED_WITHIN_MS = 50.0
_EXPIRED = "cannot be kept any more"  # the server's words for a refusal after a wait in its queue
_MOST_REQUESTS = 500_000  # of all levels


@dataclass(frozen=True)
class OverloadScenario:
    """What `trimodal bench overload` is told; times in seconds.

    Attributes:
        loads: offered, times the capacity.
        mix: tier → weight among the requests.
        capacity: requests a second; 0: it is measured.
        answer_tokens: mean of the fake engine's answers.
        patience: until a client gives up.
    """

    loads: tuple[float, ...] = (0.5, 1.0, 2.0, 5.0, 10.0)
    seconds: float = 60.0
    schedulers: tuple[str, ...] = SCHEDULERS
    mix: Mapping[str, float] = field(default_factory=lambda: {"premium": 10, "standard": 60, "batch": 30})
    tiers: Path = TIERS
    capacity: float = 0.0
    prompts: Path | None = None
    prompt_tokens: int = 64
    answer_tokens: int = 24
    max_tokens: int = 96
    patience: float = 30.0
    most_open: int = 8192
    seed: int = 1
    changes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Overload:
    """What came of it. Each level is a case of its own, and so is each tier of it.

    Attributes:
        capacity: requests a second; `measured`: what each side's closed loop came to.
        levels: all tiers together. tiers: one each.
        statements: which goals were met and which missed, a sentence each.
    """

    capacity: float
    measured: Mapping[str, float]
    levels: Sequence[Result]
    tiers: Sequence[Result]
    statements: Sequence[str]


async def run_overload(
    scenario: OverloadScenario, stop: asyncio.Event | None, tell: Callable[[str], object]
) -> Overload:
    """Measures the capacity, then each level on each side.

    Raises:
        OperatorError: a setting is wrong, or a server does not start.
    """
    tiers = read_tiers(scenario.tiers).tier
    if unknown := set(scenario.mix) - set(tiers):
        known = ", ".join(tiers)
        raise SettingsError(f"--mix: '{min(unknown)}' is none of the tiers in {scenario.tiers.name}: {known}")
    mix = Mix(
        parse_lengths(f"lognormal:{scenario.prompt_tokens},0.6", "--prompt-tokens", 8),
        parse_lengths(str(scenario.max_tokens), "--max-tokens"),
        lines=read_lines(scenario.prompts) if scenario.prompts else (),
        tiers=scenario.mix,
    )
    questions = Questions(mix, scenario.seed)
    asked: dict[str, Questions] = {}

    def questions_of(case: Case) -> Questions:
        """The same for both sides."""
        if case.name not in asked:
            asked[case.name] = questions.reseeded(f"{scenario.seed} {case.name}")
            asked[case.name].prepare(case.expected)
        return asked[case.name]

    async with AsyncExitStack() as stack:
        targets: dict[str, GrpcLlm] = {}
        measured: dict[str, float] = {}
        for name in scenario.schedulers:
            test = LoadTest(LoadPlan(timeout=scenario.patience), changes={"llm": _changes(scenario, name)})
            server = await stack.enter_async_context(server_under_test(test, "llm"))
            client = client_of(test, server)
            stack.push_async_callback(client.aclose)
            settings = served_settings(server.models["llm"])
            options = {"stop": STOP} if settings.engine == "fake" else {}
            targets[name] = GrpcLlm(client, questions, timeout=scenario.patience, options=options)
            await questions.calibrate(targets[name].count)
            # Also what the deadline side learns its engine's speed from.
            measured[name] = await _capacity(targets[name], questions, settings, scenario.seconds)
        capacity = scenario.capacity or max(measured.values())
        if capacity * sum(scenario.loads) * scenario.seconds > _MOST_REQUESTS:
            raise SettingsError(f"these levels make over {_MOST_REQUESTS} requests: take fewer --seconds")
        plan = LoadPlan(
            "poisson",
            tuple(capacity * load for load in scenario.loads),
            seconds=scenario.seconds,
            max_in_flight=scenario.most_open,
            timeout=scenario.patience,
            seed=scenario.seed,
        )
        sides = {
            name: sending(plan, lambda case, _, target=target: target.asking(questions_of(case)).send, stop)  # type: ignore[misc]
            for name, target in targets.items()
        }
        results = await run_cases(plan, sides, tell=tell)
    levels, of_tiers = by_tier(results, capacity, tiers, lambda case, n: asked[case.name].at(n).tier)
    return Overload(capacity, measured, levels, of_tiers, statements(levels, of_tiers, tiers))


async def _capacity(target: GrpcLlm, questions: Questions, settings: LlmSettings, seconds: float) -> float:
    """Answers a second of a closed loop in which there is always one that waits for a slot."""
    gpu = current_gpu()
    batch = settings.max_num_seqs or card_limits([gpu] if gpu else []).max_num_seqs
    asking = target.asking(questions, ttft_deadline_ms=MAX_TTFT_DEADLINE_MS)
    seconds = min(15.0, max(1.0, seconds / 2))
    done = await run(asking.send, Closed(2 * batch), seconds=seconds, warmup=seconds / 4)
    return Rates([done]).requests_per_s


def by_tier(
    results: Sequence[Result],
    capacity: float,
    tiers: Mapping[str, Tier],
    tier_of: Callable[[Case, int], str],
) -> tuple[list[Result], list[Result]]:
    """Splits each result by tier, each judged by its own bounds; the levels' goodput is the sum of these.

    Args:
        tier_of: of a case and the number of a request.
    """
    cases: dict[str, Case] = {}  # the same one for both sides: they are held against each other
    levels, parts = [], []
    for result in results:
        load = f"{result.case.size / capacity:.3g}×"
        of_tiers = split(result, lambda _, record, case=result.case: tier_of(case, record.number))  # type: ignore[misc]
        mine = []
        for name, tier in tiers.items():
            if runs := of_tiers.get(name):
                case = cases.setdefault(f"{load} {name}", replace(result.case, name=f"{load} {name}"))
                mine.append(Result(case, result.side, runs, {}, summarise(runs, slo_of(tier))))
        case = cases.setdefault(load, replace(result.case, name=load))
        whole = summarise(result.runs)
        goodput = sum(part.summary.goodput or 0.0 for part in mine if part.summary)
        good = sum((part.summary.good_share or 0.0) * part.summary.requests for part in mine if part.summary)
        whole = replace(whole, goodput=goodput, good_share=good / max(1, whole.requests))
        levels.append(replace(result, case=case, summary=whole))
        parts += mine
    return levels, parts


def slo_of(tier: Tier) -> Slo:
    """A tier's bounds as objectives of requests; without any, every answered one is good."""
    bounds = [Bound("ttft", tier.ttft_deadline_ms or math.inf), Bound("itl", tier.itl_bound_ms or math.inf)]
    return Slo(tuple(bounds))


def statements(
    levels: Sequence[Result], parts: Sequence[Result], tiers: Mapping[str, Tier], judged: str = "deadline"
) -> list[str]:
    """Says which goals were met and which missed, a sentence each."""
    told = []
    # At a very low load no request may have been due: that is no goodput to judge.
    mine = [one for one in levels if one.side == judged and one.summary and one.summary.requests]
    if len(mine) > 1:
        last, best = max(mine, key=lambda one: one.case.size), max(mine, key=_goodput)
        kept = round(_goodput(last) / _goodput(best), 6) if _goodput(best) else 0.0
        told.append(
            f"{_met(kept >= GOODPUT_KEPT)}: goodput at {last.case.name} is {_goodput(last):.2f}/s, "
            f"{kept:.2f} of its peak of {_goodput(best):.2f}/s at {best.case.name} (goal: {GOODPUT_KEPT:g})"
        )
        names = sorted(tiers, key=lambda name: -tiers[name].priority)
        found = {one.case.name: one for one in parts if one.side == judged}
        if highest := next((name for name in names if f"{last.case.name} {name}" in found), ""):
            told += _first_texts(found[f"{last.case.name} {highest}"], tiers[highest].ttft_deadline_ms)
    refused = [
        1e3 * record.latency
        for one in mine
        for run in one.runs
        for record in run.counted
        if record.outcome == "unavailable" and _EXPIRED not in record.error
    ]
    if refused:
        told.append(
            f"{_met(max(refused) < REFUSED_WITHIN_MS)}: the slowest refusal came {max(refused):.1f} ms after "
            f"its request was due (goal: below {REFUSED_WITHIN_MS:g})"
        )
    return told


def _first_texts(result: Result, bound: int) -> list[str]:
    """Of a tier's p99 TTFT, in which who waits in vain counts as longer than all others."""
    if not bound:
        return []
    counted = [record for run in result.runs for record in run.counted if record.outcome != "unavailable"]
    times = [math.inf if record.ttft is None else 1e3 * record.ttft for record in counted]
    p99 = percentile(times, 99)
    p99 = math.inf if p99 is None else p99
    shown = "beyond all bounds" if math.isinf(p99) else f"{p99:.0f} ms"
    return [f"{_met(p99 <= bound)}: p99 TTFT of {result.case.name} is {shown} (bound: {bound} ms)"]


def _goodput(result: Result) -> float:
    return (result.summary.goodput if result.summary else None) or 0.0


def _met(kept: bool) -> str:
    return "met" if kept else "MISSED"


def draw(found: Overload, path: Path) -> None:
    """Writes a PNG: goodput over the offered load, a line a side. Raises: SettingsError: it cannot be."""

    def paint(axes: Any) -> None:
        for colour, side in zip(COLOURS, found.measured, strict=False):
            levels = [one for one in found.levels if one.side == side]
            loads = [one.case.size / found.capacity for one in levels]
            axes.plot(loads, list(map(_goodput, levels)), marker="o", label=side, color=colour)
        axes.axhline(found.capacity, color="grey", linestyle=":", label="capacity")
        axes.set(xlabel="offered load, times capacity", ylabel="goodput, requests/s", xscale="log")
        axes.set_ylim(bottom=0)
        axes.legend()

    save(path, [("Requests that met TTFT and ITL bounds", paint)])


def fake_answer(mean: int, sentences: int = 40, seed: int = 0) -> str:
    """Makes a script for the fake engine: a prompt's answer begins at random in it and ends at a STOP.

    Its sentences' lengths are exponential, which has no memory: so are those of the answers, whatever
    part of a sentence they begin in.

    Args:
        mean: tokens of an answer, about; the fake engine's tokens are bytes.
    """
    shares = [(index + 0.5) / sentences for index in range(sentences)]
    lengths = [max(1, round(-mean * math.log(1 - share))) for share in shares]
    rng = random.Random(seed)
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
            "fake_answer": fake_answer(scenario.answer_tokens),
            "max_num_seqs": "8",
            "apply_chat_template": "false",
        }
    changes |= dict(scenario.changes)
    # First in, first out is measured as it is without any admission: its queue has no end.
    longest = "1000000" if scheduler == "fifo" else changes.get("max_queue", "256")
    return changes | {"max_queue": longest, "scheduler": scheduler}
