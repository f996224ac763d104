import pytest

from trimodal.bench.stall import summarise_stalls


def test_only_latencies_around_half_a_second_are_stalls():
    figures = summarise_stalls([0.001] * 994 + [0.449, 0.45, 0.5, 0.55, 0.551, 1.0])
    assert (figures["stalled"], figures["requests"]) == (3, 1000)
    assert figures["p50"] == pytest.approx(1)
    assert figures["p99"] == pytest.approx(1)
    assert figures["p100"] == pytest.approx(1000)
