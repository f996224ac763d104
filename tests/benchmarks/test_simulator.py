"""The errors of the fleet simulator, as its table has them."""

from __future__ import annotations

import pytest

from benchmarks.simulator import relative_error, shown


@pytest.mark.parametrize(
    ("real", "simulated", "error", "cell"),
    [
        (2.0, 3.0, 0.5, "2, 3, +50.0%"),
        (0.0, 0.0, 0.0, "0, 0, +0.0%"),
        (0.0, 0.1, None, "0, 0.1, -"),
    ],
)
def test_what_cannot_be_compared_is_no_number(
    real: float, simulated: float, error: float | None, cell: str
) -> None:
    """A hit rate of 0, as a run of two seconds has it, made the mean of all loads nan."""
    assert relative_error(real, simulated) == error
    assert shown(real, simulated) == cell
