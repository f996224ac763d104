"""Each row is a test, and docs/gpu.md has the table."""

from __future__ import annotations

from pathlib import Path

from tests.llm.contract import test_answers, test_failures, test_features
from tests.llm.contract.rows import ENGINES, HOLES, ROWS, table


def test_each_row_is_a_test_and_each_test_a_row() -> None:
    tests = {name for module in (test_answers, test_failures, test_features) for name in vars(module)}
    assert {name.removeprefix("test_") for name in tests if name.startswith("test_")} == set(ROWS)
    assert {row for row, _ in HOLES} <= set(ROWS)
    assert {engine for _, engine in HOLES} <= set(ENGINES)


def test_the_page_has_the_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "gpu.md"
    assert table() in page.read_text()
