import numpy as np
import pytest

from tests.regress.runs import record
from trimodal.regress.compare.findings import Limits
from trimodal.regress.compare.latencies import compare_latencies, findings, too_few
from trimodal.regress.values import RecordedAnswer


def times(median, count=10, seed=0, spread=0.02):
    generator = np.random.default_rng(seed)
    return (median * generator.lognormal(0, spread, count)).tolist()


def compared(before, after, **limits):
    return compare_latencies(before, after, Limits(**limits))


def verdicts(before, after, **limits):
    found = compared(before, after, **limits)
    return {(one.name, one.metric): one.verdict for one in found}


def test_slower_is_worse_and_faster_is_better():
    before = {"a": record(ttft=times(20), tpot=times(5), total=times(100))}
    after = {"a": record(ttft=times(30, seed=1), tpot=times(3, seed=1), total=times(101, seed=1))}
    (found,) = [one for one in compared(before, after) if one.metric == "ttft"]
    assert found.verdict == "worse"
    assert found.samples == (10, 10)
    assert found.ratio == pytest.approx(1.5, abs=0.05)
    assert found.low < 1.5 < found.high
    assert found.before == np.median(times(20))
    assert verdicts(before, after) == {("a", "ttft"): "worse", ("a", "tpot"): "better", ("a", "total"): None}
    told = {one.what: (one.verdict, one.before) for one in findings(compared(before, after))}
    assert told["tpot"] == ("better", f"{np.median(times(5)):.2f} ms")
    assert set(told) == {"ttft", "tpot"}


def test_the_tolerance():
    before, after = {"a": record(total=times(100))}, {"a": record(total=times(130, seed=1))}
    assert verdicts(before, after)["a", "total"] == "worse"
    assert verdicts(before, after, latency=0.4)["a", "total"] is None
    assert verdicts(after, before, latency=0.4)["a", "total"] is None


def test_a_difference_that_nobody_feels_is_none():
    before, after = {"a": record(total=times(0.5))}, {"a": record(total=times(0.9, seed=1))}
    (found,) = compared(before, after)
    assert found.p < 0.01
    assert found.verdict is None


def test_noise_is_no_finding():
    before = {str(n): record(total=times(50, seed=n, spread=0.5)) for n in range(30)}
    after = {str(n): record(total=times(50, seed=100 + n, spread=0.5)) for n in range(30)}
    assert not findings(compared(before, after, latency=0))


def test_a_small_change_of_all_cases_shows_in_their_group():
    before = {str(n): record(total=times(10 * (n + 1), 8, n, 0.3)) for n in range(30)}
    after = {str(n): record(total=times(13 * (n + 1), 8, 100 + n, 0.3)) for n in range(30)}
    (told,) = findings(compared(before, after, latency=0.1))
    assert (told.case, told.verdict) == ("all llm", "worse")
    assert told.p < 0.01
    group = compared(before, after)[0]
    assert group.samples == (8, 8)
    assert group.low < group.ratio < group.high
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
    assert {one.name: one.samples for one in found} == {"a": (3, 5), "a (exact)": (5, 3)}
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
    before = {"a": record(total=times(100))}
    without = {"a": record(total=times(100), first=False)}
    assert before["a"].observations[0].total > 1000
    assert compared(before, without)[0].samples == (10, 10)
    assert compared(before, without)[0].ratio == 1


def test_how_many_requests_it_takes():
    def cases(count, repeat):
        return {str(n): record(total=times(50, repeat, n)) for n in range(count)}

    few = compared(cases(20, 4), cases(20, 4))
    needed = too_few(few, 0.05)
    assert needed == 7
    assert too_few(compared(cases(20, needed), cases(20, needed)), 0.05) == 0
    assert too_few(compared(cases(20, needed - 1), cases(20, needed - 1)), 0.05) == needed
    assert too_few([], 0.05) == 0
