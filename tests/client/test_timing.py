import pytest

from trimodal.client.timing import Stopwatch, percentile


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_definitions():
    clock = Clock()
    stopwatch = Stopwatch(clock)
    for at in (100.5, 100.6, 100.8):
        clock.now = at
        stopwatch.text()
    clock.now = 100.9
    stopwatch.end()
    timing = stopwatch.read(completion_tokens=5)
    assert timing.ttft == pytest.approx(0.5)
    assert timing.itl == pytest.approx((0.1, 0.2))
    assert timing.latency == pytest.approx(0.9)
    assert timing.tpot == pytest.approx((0.9 - 0.5) / 4)


def test_without_text_there_is_no_ttft_and_with_one_token_no_tpot():
    clock = Clock()
    stopwatch = Stopwatch(clock)
    clock.now = 101.0
    stopwatch.end()
    assert stopwatch.read(0).ttft is None
    assert stopwatch.read(0).tpot is None
    assert stopwatch.read(0).latency == pytest.approx(1.0)
    stopwatch.text()
    assert stopwatch.read(1).tpot is None


@pytest.mark.parametrize(
    ("values", "percent", "wanted"),
    [
        ([3, 1, 2], 50, 2),
        ([1, 2, 3, 4], 50, 2),
        (range(1, 101), 99, 99),
        ([7], 99, 7),
        ([7, 8], 0, 7),
        ([], 50, None),
        (range(1, 1001), 99.9, 999),  # not the maximum, as floats would have it
    ],
)
def test_percentile_is_the_nearest_rank(values, percent, wanted):
    assert percentile(list(values), percent) == wanted
