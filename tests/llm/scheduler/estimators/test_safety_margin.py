from __future__ import annotations

import math

import pytest

from tests.llm.scheduler.engine_rig import ticket
from trimodal.llm.scheduler.estimators.safety_margin import Residuals, SafetyMargin


def learn(margin: SafetyMargin, predicted: float, took: float, queued: bool, name: str = "a") -> None:
    each = ticket(1, name=name)
    each.predicted_ttft, each.queued = predicted, queued
    margin.learn(each, took, 0.0)


def asked(margin: SafetyMargin, predicted: float, queued: bool, name: str = "a") -> float:
    each = ticket(2, name=name)
    each.queued = queued
    return margin.seconds(each, predicted, 0.0)


def test_nothing_is_added_before_anything_is_known() -> None:
    assert asked(SafetyMargin(0.9), 1.0, True) == 0.0


def test_those_that_queue_are_late_by_the_root_of_what_was_foreseen() -> None:
    margin = SafetyMargin(0.9)
    for number in range(100):
        learn(margin, 1.0, 1.0 + number / 100, queued=True)
    assert asked(margin, 1.0, True) == pytest.approx(0.9, abs=0.02)
    assert asked(margin, 0.25, True) == pytest.approx(0.45, abs=0.01)
    assert asked(margin, 4.0, True) == pytest.approx(1.8, abs=0.04)


def test_those_that_go_at_once_are_late_by_so_much() -> None:
    margin = SafetyMargin(0.9)
    for number in range(100):
        learn(margin, 0.02, 0.02 + number / 10_000, queued=False)
    assert asked(margin, 0.5, False) == pytest.approx(0.009, abs=0.001)
    assert asked(margin, 0.5, True) == 0.0  # another matter
    assert asked(margin, 0.5, False, name="b") == 0.0  # and another tier


def test_predictions_that_are_always_too_long_are_shortened_but_not_below_nothing() -> None:
    margin = SafetyMargin(0.9)
    for _ in range(20):
        learn(margin, 1.0, 0.5, queued=True)
        learn(margin, 1.0, 0.1, queued=False)
    assert asked(margin, 4.0, True) == pytest.approx(-1.0)
    assert asked(margin, 0.16, True) == -0.16
    assert asked(margin, 0.2, False) == -0.2


def test_more_late_answers_than_may_be_raise_the_margin_until_there_are_fewer() -> None:
    """Errors are spread evenly from 0 to 1 s; the deadline is 0.5 s after what was foreseen."""
    margin = SafetyMargin(0.9)

    def admitted(error: float) -> None:
        each = ticket(1)
        each.predicted_ttft, each.ttft_deadline, each.queued = 1.0, 1.5, True
        margin.learn(each, 1.0 + error, 0.0)

    for number in range(120):
        admitted((number * 0.618) % 1 / 2)
    usual = asked(margin, 1.0, True)
    assert usual == pytest.approx(0.45, abs=0.02)
    for number in range(4):
        admitted(0.6 + number / 10)
    raised = asked(margin, 1.0, True)
    assert raised > usual + 0.1
    for number in range(120):
        admitted((number * 0.618) % 1 / 2)
    assert asked(margin, 1.0, True) == pytest.approx(usual, abs=0.02)


def test_one_bad_moment_does_not_keep_a_small_tier_out() -> None:
    """Nine answers of a tier are its whole record, one of them very late; others have a long one."""

    def learn_due(name: str, error: float) -> None:
        each = ticket(1, name=name)
        each.predicted_ttft, each.ttft_deadline, each.queued = 1.0, 100.0, True
        margin.learn(each, 1.0 + error, 0.0)

    margin = SafetyMargin(0.9)
    for number in range(100):
        learn_due("many", number / 500)
    for error in (0.0,) * 8 + (9.0,):
        learn_due("few", error)
    assert asked(margin, 1.0, True, name="few") == pytest.approx(0.18, abs=0.03)
    for _ in range(40):
        learn_due("few", 0.5)
    assert asked(margin, 1.0, True, name="few") == pytest.approx(0.5)  # its own by now


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
