import math

from trimodal.llm.scheduler.residuals import Residuals


def test_too_few_errors_say_nothing() -> None:
    errors = Residuals()
    for error in range(7):
        errors.add(error, 0.0)
    assert math.isnan(errors.quantile(0.5, 0.0))


def test_the_quantile_is_the_one_that_holds_for_the_next_error() -> None:
    errors = Residuals()
    for error in range(1, 100):
        errors.add(error, 0.0)
    assert errors.quantile(0.9, 0.0) == 90  # rank ceil(0.9 · (99 + 1))
    assert errors.quantile(0.999, 0.0) == 99


def test_old_errors_are_forgotten() -> None:
    errors = Residuals()
    for error in range(20):
        errors.add(error, 0.0)
    for _ in range(10):
        errors.add(100.0, 25.0)
    assert errors.quantile(0.5, 26.0) < 100
    assert errors.quantile(0.5, 31.0) == 100
    assert math.isnan(errors.quantile(0.5, 60.0))
