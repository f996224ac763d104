from trimodal.bench.common.serving import Counts, StepTimes, between


def test_differences_become_means():
    before = {"a": Counts(100, 50, 1_000_000, 2_000_000)}
    after = {"a": Counts(164, 58, 9_000_000, 34_000_000)}
    assert between(before, after, 1)["a"] == StepTimes(8.0, 8 / 64, 32 / 64)
    assert between(before, after, 16)["a"] == StepTimes(8.0, 2.0, 8.0)


def test_a_model_that_did_nothing():
    counts = {"a": Counts(1, 1, 5, 5)}
    assert between(counts, counts, 4)["a"] == StepTimes(0.0, 0.0, 0.0)
