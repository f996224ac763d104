import math

import pytest

from trimodal.bench.common.closed_loop import paired_ratio
from trimodal.bench.llm.sides import Round, Sample, summarise


def test_a_rounds_rate_is_all_tokens_over_its_wall_time():
    one = Round((Sample(0.1, (0.01,) * 9, 10), Sample(0.2, (), 1)), seconds=0.5)
    assert one.tokens_per_second == pytest.approx(22)


def test_summary_takes_the_median_round_and_percentiles_of_all_answers():
    rounds = [
        Round((Sample(0.010, (0.001, 0.002), 10), Sample(0.030, (0.003,), 10)), 1.0),
        Round((Sample(0.020, (0.004,), 10),), 1.0),
        Round((Sample(0.400, (), 90),), 1.0),
    ]
    summary = summarise(rounds)
    assert summary.tokens_per_second == pytest.approx(20)
    assert summary.ttft_p50 == pytest.approx(20)  # nearest rank: the second of four
    assert summary.ttft_p95 == pytest.approx(400)
    assert summary.itl_p50 == pytest.approx(2)
    assert summary.itl_p99 == pytest.approx(4)


def test_answers_of_one_token_have_no_gaps():
    assert math.isnan(summarise([Round((Sample(0.1, (), 1),), 1.0)]).itl_p50)


def test_paired_ratio_cancels_what_drifts_in_both():
    ours, theirs = [90.0, 45.0, 9.0], [100.0, 50.0, 10.0]
    assert paired_ratio(ours, theirs, lambda rate: rate) == pytest.approx(0.9)


def test_paired_ratio_wants_as_many_of_both():
    with pytest.raises(ValueError, match="shorter"):
        paired_ratio([1.0, 2.0], [1.0], lambda rate: rate)
