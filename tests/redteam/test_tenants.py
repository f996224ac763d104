"""No tenant learns of another, by any cell; those of one tenant show that the distinguisher can tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.redteam.stack import Stack, stack
from tests.redteam.tenants import CELLS, SHARED, Cell, judge

TRIES, FEW = 40, 12  # few where each waits for an answer that is still made


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder: Path = tmp_path_factory.mktemp("stack")
    with stack(folder) as running:
        yield running


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_a_tenant_is_a_wall(served: Stack, cell: Cell) -> None:
    tries = FEW if cell.name == "coalescing" else TRIES
    verdict = judge(served, cell, tries)
    assert verdict.holds, verdict
    if cell.name in SHARED:
        control = judge(served, cell, tries, ("anna", "anna too"), seed=1)
        assert control.right == control.guesses, "who may know, does"
