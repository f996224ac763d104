import math
import sys

import numpy as np
import pytest

from tests.regress.runs import record
from trimodal.errors import OperatorError
from trimodal.regress.latencies import compare_latencies, fewer_successes, findings, holm, mann_whitney
from trimodal.regress.values import RecordedAnswer


def times(median, count=10, seed=0, spread=0.02):
    generator = np.random.default_rng(seed)
    return (median * generator.lognormal(0, spread, count)).tolist()


def compared(before, after, tolerance=0.2):
    return compare_latencies(before, after, tolerance)


def verdicts(*given):
    return {(one.name, one.metric): one.verdict for one in compared(*given)}


def test_slower_is_worse_and_faster_is_better():
    before = {"a": record(ttft=times(20), tpot=times(5), total=times(100))}
    after = {"a": record(ttft=times(30, seed=1), tpot=times(3, seed=1), total=times(101, seed=1))}
    (found,) = [one for one in compared(before, after) if one.metric == "ttft"]
    assert found.verdict == "worse"
    assert found.ratio == pytest.approx(1.5, abs=0.05)
    assert found.before == np.median(times(20))
    assert verdicts(before, after) == {("a", "ttft"): "worse", ("a", "tpot"): "better", ("a", "total"): None}
    told = {one.what: (one.verdict, one.before) for one in findings(compared(before, after))}
    assert told["tpot"] == ("better", f"{np.median(times(5)):.2f} ms")
    assert set(told) == {"ttft", "tpot"}


def test_the_tolerance():
    before, after = {"a": record(total=times(100))}, {"a": record(total=times(130, seed=1))}
    assert verdicts(before, after)["a", "total"] == "worse"
    assert verdicts(before, after, 0.4)["a", "total"] is None
    assert verdicts(after, before, 0.4)["a", "total"] is None


def test_a_difference_that_nobody_feels_is_none():
    before, after = {"a": record(total=times(0.5))}, {"a": record(total=times(0.9, seed=1))}
    (found,) = compared(before, after)
    assert found.p < 0.01
    assert found.verdict is None


def test_noise_is_no_finding():
    before = {str(n): record(total=times(50, seed=n, spread=0.5)) for n in range(30)}
    after = {str(n): record(total=times(50, seed=100 + n, spread=0.5)) for n in range(30)}
    assert not findings(compared(before, after, 0))


def test_a_small_change_of_all_cases_shows_in_their_group():
    before = {str(n): record(total=times(10 * (n + 1), 8, n, 0.3)) for n in range(30)}
    after = {str(n): record(total=times(13 * (n + 1), 8, 100 + n, 0.3)) for n in range(30)}
    (told,) = findings(compared(before, after, 0.1))
    assert (told.case, told.verdict) == ("all llm", "worse")
    assert told.p < 0.01
    group = compared(before, after)[0]
    assert group.ratio == pytest.approx(1.3, abs=0.1)


def test_a_slow_round_is_one_measurement_and_not_thirty():
    def cases(seed, slow):
        factors = np.array([3.0] * slow + [1.0] * (8 - slow))
        return {
            str(n): record(total=(times(10 * (n + 1), 8, seed + n) * factors).tolist()) for n in range(30)
        }

    before, after = cases(0, 0), cases(100, 3)  # a busy moment during three of eight rounds
    (group,) = [one for one in compared(before, after) if not one.case]
    assert group.p > 0.05
    assert not findings(compared(before, after))


def test_one_case_of_many_that_is_worse():
    before = {str(n): record(total=times(50, seed=n)) for n in range(30)}
    after = {str(n): record(total=times(50 if n else 80, seed=100 + n)) for n in range(30)}
    assert [one.case for one in findings(compared(before, after))] == ["0"]


def test_hits_are_compared_with_hits():
    before = {"a": record(total=times(100, 3) + times(2, 5), cache=[""] * 3 + ["exact"] * 5)}
    after = {"a": record(total=times(100, 5) + times(2, 3), cache=[""] * 5 + ["exact"] * 3)}
    found = compared(before, after)
    assert [one.name for one in found] == ["a", "a (exact)"]
    assert all(0.9 < one.ratio < 1.1 for one in found)


def test_whole_times_of_answers_of_other_lengths_are_not_compared():
    before = {"a": record(ttft=times(20), total=times(100), tokens=10)}
    after = {"a": record(ttft=times(20), total=times(200), tokens=20)}
    assert {one.metric for one in compared(before, after)} == {"ttft"}


def test_refusals_and_too_few_requests_have_no_times():
    fine = {"a": record(total=times(100))}
    assert compared(fine, {"a": record(RecordedAnswer(error="UNAVAILABLE"), total=times(1))}) == []
    assert compared(fine, {"a": record(total=times(100, 2))}) == []
    assert len(compared(fine, {"a": record(total=times(100, 3))})) == 1
    assert compared(fine, {"b": record(total=times(100))}) == []


def test_first_requests_do_not_count():
    before, after = record(total=times(100)), record(total=times(100))
    quick = after.observations[0].model_copy(update={"total": 1.0})
    after = after.model_copy(update={"observations": (quick, *after.observations[1:])})
    assert before.observations[0].total > 1000
    (found,) = compared({"a": before}, {"a": after})
    assert (found.ratio, found.p) == (1, pytest.approx(1))


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [
        ([1, 2, 3], [4, 5, 6], 2 / math.comb(6, 3)),
        ([1, 2, 3, 4], [5, 6, 7, 8, 9, 10, 11, 12, 13], 2 / math.comb(13, 4)),
        (list(range(30)), list(range(30, 60)), 2 / math.comb(60, 30)),
        ([1, 3, 5], [2, 4, 6], 0.7),
        ([2.0] * 5, [2.0] * 9, 1),
        ([1.0] * 50, [1.0] * 50, 1),
    ],
)
def test_mann_whitney(first, second, p):
    assert mann_whitney(first, second) == pytest.approx(p)
    assert mann_whitney(second, first) == pytest.approx(p)


@pytest.mark.parametrize(
    ("before", "after", "p"),
    [((10, 11), (0, 3), 4 / 364), ((2, 2), (0, 2), 1 / 6), ((0, 4), (0, 4), 1), ((1, 8), (2, 5), 0.965)],
)
def test_fewer_successes_is_fishers_test(before, after, p):
    assert fewer_successes(before, after) == pytest.approx(p, abs=1e-3)


def test_holm():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_without_scipy_the_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(OperatorError, match=r"needs scipy: pip install 'trimodal\[bench\]'"):
        mann_whitney([1, 2], [3, 4])
