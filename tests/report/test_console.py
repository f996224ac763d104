"""What a narrow terminal shows of a table."""

from __future__ import annotations

import io

from rich.console import Console

from trimodal.report.console import Table, print_table


def test_a_short_name_is_in_one_line_and_a_long_one_is_folded() -> None:
    """A case was "poisso" and "n 12/s" where the figures wanted room."""
    figures = [f"figure {number}" for number in range(6)]
    sentence = "a sentence that is longer than any name"
    file = io.StringIO()
    table = Table("", ["case", "error", *figures], [["poisson 12/s", sentence, *["123.4"] * 6]], names=2)
    print_table(table, Console(file=file, width=70))
    shown = file.getvalue()
    assert "poisson 12/s" in shown
    assert sentence not in shown
    assert max(map(len, shown.splitlines())) <= 70
