"""How a level is split by tier and what is said of it, on requests that are written down here."""

from __future__ import annotations

import random
import statistics
from typing import Any

import pytest

from tests.bench.load.records import answer, record, run_of
from trimodal.bench.load.plan import LoadPlan
from trimodal.bench.load.records import Record
from trimodal.bench.load.rounds import Result
from trimodal.bench.report.tables import error_table, goodput_table
from trimodal.bench.scenarios.overload import STOP, by_tier, fake_answer, statements
from trimodal.llm.engines.fake import FakeEngine
from trimodal.llm.engines.protocol import EngineRequest, Sampling
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tiers import Tier
from trimodal.llm.tokenizer import ByteTokenizer

TIERS = {"premium": Tier(priority=10, ttft_deadline_ms=500, itl_bound_ms=200), "free": Tier()}
CAPACITY = 10.0
MET = answer(0.0, 0.3, [0.1])
REFUSED = {"outcome": "unavailable", "error": "256 requests wait already"}


def split(levels: dict[float, list[Record]], side: str = "deadline") -> tuple[list[Result], list[Result]]:
    """Levels of 10 s at these multiples of the capacity; every fourth request is of tier free."""
    cases = LoadPlan("poisson", tuple(CAPACITY * load for load in levels)).cases
    results = []
    for case, records in zip(cases, levels.values(), strict=True):
        numbered = [one.since(0.0, number, one.due) for number, one in enumerate(records)]
        results.append(Result(case, side, [run_of(numbered, 10.0)]))
    return by_tier(results, CAPACITY, TIERS, lambda case, number: "premium" if number % 4 else "free")


def said(levels: dict[float, list[Record]]) -> list[str]:
    return statements(*split(levels), TIERS)


def test_each_tier_is_judged_by_its_own_bounds() -> None:
    late, uneven = answer(0.0, 0.7, [0.1]), answer(0.0, 0.3, [0.3])
    levels, parts = split({1: [late, MET, late, uneven, uneven, record(**REFUSED)]})
    free, premium = {one.case.name: one.summary for one in parts}.values()
    assert {one.case.name for one in parts} == {"1× premium", "1× free"}
    premium, free = (one.summary for one in sorted(parts, key=lambda one: one.case.name, reverse=True))
    assert premium
    assert free
    assert (premium.requests, premium.goodput, premium.good_share) == (4, pytest.approx(0.1), 0.25)
    assert (free.requests, free.goodput) == (2, pytest.approx(0.2))
    (level,) = levels
    assert level.summary
    assert level.summary.goodput == pytest.approx(0.3)
    assert level.summary.good_share == pytest.approx(3 / 6)
    row = goodput_table("All tiers", levels).rows[0]
    assert row[:6] == ["1×", "deadline", "6", "5", "0.30", "50%"]
    told = error_table(levels)
    assert told
    assert told.rows[0][3:] == ["256 requests wait already", "1"]


def test_both_sides_are_of_the_same_case() -> None:
    plan = LoadPlan("poisson", (CAPACITY,)).cases
    results = [Result(plan[0], side, [run_of([MET], 10.0)]) for side in ("deadline", "fifo")]
    levels, parts = by_tier(results, CAPACITY, TIERS, lambda case, number: "premium")
    assert levels[0].case is levels[1].case
    assert parts[0].case is parts[1].case


def refused(seconds: float) -> Record:
    return record(latency=seconds, **REFUSED)


@pytest.mark.parametrize(
    ("levels", "sentences"),
    [
        (
            {1: [MET] * 10, 10: [*[MET] * 9, refused(0.049)]},
            [
                "met: goodput at 10× is 0.90/s, 0.90 of its peak of 1.00/s at 1× (goal: 0.9)",
                "met: p99 TTFT of 10× premium is 300 ms (bound: 500 ms)",
                "met: the slowest refusal came 49.0 ms after its request was due (goal: below 50)",
            ],
        ),
        (
            {1: [MET] * 10, 10: [*[MET] * 7, answer(0.0, 0.9), MET, refused(0.051)]},
            [
                "MISSED: goodput at 10× is 0.80/s, 0.80 of its peak of 1.00/s at 1× (goal: 0.9)",
                "MISSED: p99 TTFT of 10× premium is 900 ms (bound: 500 ms)",
                "MISSED: the slowest refusal came 51.0 ms after its request was due (goal: below 50)",
            ],
        ),
        (
            # Who waits in vain counts as longer than all others.
            {1: [MET] * 10, 2: [*[MET] * 9, record(outcome="timeout")]},
            [
                "met: goodput at 2× is 0.90/s, 0.90 of its peak of 1.00/s at 1× (goal: 0.9)",
                "MISSED: p99 TTFT of 2× premium is beyond all bounds (bound: 500 ms)",
            ],
        ),
        ({0.01: [], 0.02: []}, []),
        ({1: [MET]}, []),
    ],
)
def test_goals_are_met_or_missed(levels: Any, sentences: list[str]) -> None:
    assert said(levels) == sentences


def test_answers_of_the_fake_engine_end_at_random_with_their_mean() -> None:
    """The lengths of answers are the engine's secret: neither scheduler may be told by the requests."""
    tokenizer = ByteTokenizer()
    settings = LlmSettings(
        engine="fake", fake_step_ms=0, fake_prefill_us=0, fake_answer=fake_answer(24), max_num_seqs=1
    )
    engine = FakeEngine(settings)
    rng = random.Random(5)
    lengths = []
    for id in range(400):
        prompt = "".join(rng.choices("abcdefghij ", k=rng.randint(20, 90)))
        engine.add(EngineRequest(id, tokenizer.encode_prompt(prompt), Sampling(max_tokens=96)))
        made: list[int] = []
        finish = None
        while finish is None and STOP not in tokenizer.decode(made):
            (output,) = engine.step()
            made += output.token_ids
            finish = output.finish_reason
        engine.cancel(id)
        lengths.append(len(made))
    assert statistics.mean(lengths) == pytest.approx(24, rel=0.2)
    assert statistics.stdev(lengths) == pytest.approx(24, rel=0.25)  # an exponential's, but for the cut
    assert 1 <= min(lengths) <= 2
    assert max(lengths) > 72
