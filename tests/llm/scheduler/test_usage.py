import pytest

from trimodal.llm.scheduler.usage import Usage


def used(share: float) -> Usage:
    """Priority 10 used a share of the engine in each of 120 s."""
    usage = Usage(0.0)
    for second in range(1, 121):
        usage.add(10, share, float(second))
    return usage


def test_the_share_of_those_above() -> None:
    usage = used(0.5)
    assert usage.above(0, 120.0) == pytest.approx(0.5, abs=0.02)
    assert usage.above(10, 120.0) == 0


def test_the_share_is_right_from_the_first_seconds_on() -> None:
    usage = Usage(0.0)
    for second in range(1, 6):
        usage.add(10, 0.5, float(second))
    assert usage.above(0, 5.0) == pytest.approx(0.5, abs=0.08)


def test_it_fades() -> None:
    assert used(0.5).above(0, 240.0) < 0.02


def test_a_wait_is_stretched_by_those_above() -> None:
    usage = used(0.5)
    assert usage.stretched(1.0, 0, 5.0, 120.0) == pytest.approx(2.0, rel=0.05)
    assert usage.stretched(1.0, 10, 5.0, 120.0) == 1.0
    assert usage.stretched(0.0, 0, 5.0, 120.0) == 0.0


def test_it_ends_when_age_has_raised_the_class_even_if_those_above_take_all() -> None:
    usage = used(1.2)
    assert usage.above(0, 120.0) == 1
    assert usage.stretched(1.0, 0, 5.0, 120.0) == pytest.approx(10 * 5.0 + 1.0)
    assert usage.stretched(1.0, -100, 0.001, 120.0) == pytest.approx(1.11)
