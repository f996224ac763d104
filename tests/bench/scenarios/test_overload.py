"""How a level is split by tier, on requests that are written down here."""

from __future__ import annotations

import random
import statistics

import pytest

from tests.bench.load.records import answer, record, run_of
from trimodal.bench.load.plan import LoadPlan
from trimodal.bench.load.records import Record
from trimodal.bench.load.rounds import Result
from trimodal.bench.load.statistics import summarise
from trimodal.bench.report.tables import TOKENS, error_table, ratio_table
from trimodal.bench.scenarios.overload import STOP, by_tier, fake_answer
from trimodal.llm.engines.fake import FakeEngine
from trimodal.llm.engines.protocol import EngineRequest, Sampling
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tiers import Tier
from trimodal.llm.tokenizer import ByteTokenizer

TIERS = {"premium": Tier(priority=10, ttft_deadline_ms=500, itl_bound_ms=200), "free": Tier()}
CAPACITY = 10.0
MET = answer(0.0, 0.3, [0.1])
REFUSED = {"outcome": "unavailable", "error": "256 requests wait already"}


def judged(records: list[Record], *sides: str) -> list[Result]:
    """A level of 10 s at the capacity, on these sides; every fourth request is of tier free."""
    case = LoadPlan("poisson", (CAPACITY,)).cases[0]
    numbered = [one.since(0.0, number, one.due) for number, one in enumerate(records)]
    done = run_of(numbered, 10.0)
    results = [Result(case, side, [done], summarise(done)) for side in sides]
    return by_tier(results, CAPACITY, TIERS, lambda case, number: "premium" if number % 4 else "free")


def test_each_tier_is_judged_by_its_own_bounds_and_the_level_by_the_sum() -> None:
    late, uneven = answer(0.0, 0.7, [0.1]), answer(0.0, 0.3, [0.3])
    level, free, premium = judged([late, MET, late, uneven, uneven, record(**REFUSED)], "deadline")
    assert (level.label, free.label, premium.label) == ("deadline", "deadline free", "deadline premium")
    one = premium.summary
    assert (one.requests, one.goodput, one.good_share) == (4, pytest.approx(0.1), 0.25)
    assert (free.summary.requests, free.summary.goodput) == (2, pytest.approx(0.2))
    assert (level.summary.goodput, level.summary.good_share) == (pytest.approx(0.3), 3 / 6)
    refused = error_table([level, free, premium])
    assert refused
    assert [row[3:] for row in refused.rows] == [["256 requests wait already", "1"]]


def test_both_sides_are_of_the_same_case_and_tiers_are_not_held_against_each_other() -> None:
    results = judged([MET] * 8, "deadline", "fifo")
    assert {one.case.name for one in results} == {"1×"}
    ratios = ratio_table(TOKENS, results)
    assert ratios
    assert [row[:2] for row in ratios.rows] == [["1×", "deadline / fifo"]]


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
