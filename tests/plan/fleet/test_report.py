"""What the panels of simulated fleets show: plans that differ in a number alone are one line."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.figure import Figure

from trimodal.plan.fleet.report import panels, row
from trimodal.plan.fleet.tally import Objective, Outcome, Tally


def outcome(name: str, replicas: int, price: float = 2.0) -> Outcome:
    """Of a run without a request."""
    seconds = 3600.0
    paid = replicas * seconds
    tally = Tally(Objective(), 0.0, 0.0)
    return tally.outcome(
        name,
        seconds,
        price_per_hour=price,
        busy=paid / 2,
        slots=paid / 4,
        ready=paid,
        paid=paid,
        made=1_000_000 * replicas,
        replicas=[(0.0, replicas, replicas)],
    )


def painted(outcomes: list[Outcome], title: str) -> Any:
    (paint,) = [paint for name, paint, _ in panels(outcomes) if name == title]
    axes = Figure().subplots()
    paint(axes)
    return axes


def test_plans_of_several_sizes_are_a_line() -> None:
    outcomes = [outcome("in turn 10", 10), outcome("affinity 5", 5), outcome("affinity 10", 10)]
    axes = painted(outcomes, "Cost")
    lines = {line.get_label(): line.get_xdata().tolist() for line in axes.get_lines()}
    assert lines == {"in turn": [10.0], "affinity": [5.0, 10.0]}


def test_other_plans_are_bars() -> None:
    outcomes = [outcome("fixed", 10), outcome("scaled", 5)]
    assert [title for title, _, _ in panels(outcomes)] == [
        "Replicas over time", "Time to first token", "What good requests cost",
    ]  # fmt: skip
    axes = painted(outcomes, "Replicas over time")
    assert [line.get_ydata().tolist() for line in axes.get_lines()] == [[10, 10], [5, 5]]
    axes = painted(outcomes, "What good requests cost")
    assert [line.get_xdata().tolist() for line in axes.get_lines()] == [[20.0], [10.0]]


@pytest.mark.parametrize("names", [("a 1", "a 2"), ("a", "b")])
def test_without_a_price_there_is_no_cost(names: tuple[str, str]) -> None:
    outcomes = [outcome(name, 3, price=0.0) for name in names]
    assert len(panels(outcomes)) == 2
    assert row(outcomes[0])[-2:] == ["-", "-"]
