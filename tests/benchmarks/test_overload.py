"""How a level is split by tier, on requests that are written down here, and a small run."""

from __future__ import annotations

import json
import random
import statistics
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.overload.__main__ import app
from benchmarks.overload.measure import STOP, by_tier, fake_answer, tier_of
from tests.bench.load.records import answer, record, run_of
from trimodal.bench.load.plan import LoadPlan
from trimodal.bench.load.records import Record
from trimodal.bench.load.rounds import Result
from trimodal.bench.load.statistics import summarise
from trimodal.bench.report import TOKENS, error_table, ratio_table
from trimodal.llm.engines.fake import FakeEngine
from trimodal.llm.engines.protocol import EngineRequest, Sampling
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tiers import Tier
from trimodal.llm.tokenizer import ByteTokenizer

TIERS = {"premium": Tier(priority=10, ttft_deadline_ms=500, itl_bound_ms=200), "free": Tier()}
CAPACITY = 10.0
MET = answer(0.0, 0.3, [0.1])
REFUSED = {"outcome": "unavailable", "error": "256 requests wait already"}


def test_tiers_are_drawn_by_their_weights() -> None:
    drawn = [tier_of({"premium": 1, "free": 3}, "poisson 10", number) for number in range(400)]
    assert 70 < drawn.count("premium") < 130
    assert drawn == [tier_of({"premium": 1, "free": 3}, "poisson 10", number) for number in range(400)]


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


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--load nan", "load"),
        ("--mix premium", "--mix premium: tier=weight is needed"),
        ("--mix premium=-1", "with a weight above 0"),
        ("--mix premium=nan", "with a weight above 0"),
        ("--mix gold=1", "'gold' is none of the tiers in tiers.toml: premium, standard, batch"),
        ("--tiers /nowhere.toml", "nowhere.toml cannot be read"),
        ("--json /nowhere/r.json", "--json /nowhere/r.json: no file can be written there"),
        ("--set colour=red", "unknown parameter 'colour'"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(options: str, sentence: str) -> None:
    result = CliRunner().invoke(app, options.split(), env={"COLUMNS": "300"})
    assert result.exit_code in (1, 2), result.output
    assert sentence in " ".join(result.output.split())


FILE = """
[tier.standard]
ttft_deadline_ms = 300
itl_bound_ms = 1000

[tier.slow]
priority = -1
ttft_deadline_ms = 600
"""


@pytest.mark.e2e
@pytest.mark.slow
def test_two_small_levels_on_both_schedulers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 4 times its capacity first in, first out can only be late; the figures of both sides balance."""
    monkeypatch.setenv("TRIMODAL_CACHE", str(tmp_path / "cache"))
    tiers, figures = tmp_path / "tiers.toml", tmp_path / "out.json"
    tiers.write_text(FILE)
    result = CliRunner().invoke(
        app,
        [
            *("--load", "0.5", "--load", "4", "--seconds", "1", "--capacity", "20"),
            *("--tiers", str(tiers), "--mix", "slow=1,standard=3", "--json", str(figures)),
            *("--set", "fake_step_ms=5", "--set", "max_num_seqs=2"),
        ],
    )
    assert result.exit_code == 0, result.output
    found = json.loads(figures.read_text())
    assert found["facts"]["capacity"].startswith("20.00 requests/s; closed loop: deadline ")
    cases = {(case["case"], case["side"], case["part"]): case for case in found["cases"]}
    for load in ("0.5×", "4×"):
        both = [cases[load, side, ""] for side in ("deadline", "fifo")]
        assert both[0]["requests"] == both[1]["requests"] > 0, "the very same requests"
        for side, one in zip(("deadline", "fifo"), both, strict=True):
            of_tiers = [cases[at] for at in cases if at[:2] == (load, side) and at[2]]
            assert sum(tier["requests"] for tier in of_tiers) == one["requests"]
            assert "unsent" not in one["outcomes"]
        assert "unavailable" not in both[1]["outcomes"]
