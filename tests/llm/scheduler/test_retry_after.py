import pytest

from trimodal.llm.scheduler.retry_after import RetryAfter


def busy(turn: float = 0.5, until: float = 20.0) -> RetryAfter:
    """One hand-over every `turn` seconds."""
    returns = RetryAfter()
    for number in range(40, 0, -1):
        returns.handed_over(until - number * turn)
    return returns


def test_each_further_one_is_told_to_come_a_turn_later() -> None:
    returns = busy()
    hints = [returns.hint(0, 1.0, 20.0) for _ in range(4)]
    assert hints == pytest.approx([1.5, 2.0, 2.5, 3.0])


def test_time_that_passes_makes_room_again() -> None:
    returns = busy()
    for _ in range(10):
        returns.hint(0, 1.0, 20.0)
    assert returns.hint(0, 1.0, 25.0) < 2.2


def test_not_all_come_again_so_there_is_an_end_to_it() -> None:
    returns = busy()
    for _ in range(1000):
        assert returns.hint(0, 1.0, 20.0) <= 11.0
    assert returns.hint(0, 1e9, 20.0) == 60.0


def test_those_below_come_after_those_above() -> None:
    returns = busy()
    for _ in range(4):
        returns.hint(10, 0.0, 20.0)
    assert returns.hint(0, 0.0, 20.0) == pytest.approx(2.5)
    assert returns.hint(10, 0.0, 20.0) == pytest.approx(2.5)
    assert returns.hint(20, 0.0, 20.0) == pytest.approx(0.5)


def test_before_the_first_hand_over_a_second_is_a_guess() -> None:
    returns = RetryAfter()
    assert returns.turn_s(5.0) == 1.0
    assert returns.idle_s(5.0) == float("inf")
    assert returns.hint(0, 0.0, 5.0) == 1.0


def test_a_long_idle_engine_does_not_make_a_long_turn() -> None:
    returns = busy()
    assert returns.turn_s(20_000.0) == 1.0
    assert returns.idle_s(20.5) == 1.0


def test_a_hint_is_never_next_to_nothing() -> None:
    assert busy(turn=1e-6).hint(0, -5.0, 20.0) == 0.05
