"""The table of fields in docs/gateway.md is that of the schemas and of the packages that are installed."""

from __future__ import annotations

from tests.project.api_fields import PAGE, page


def test_the_table_of_fields_is_up_to_date() -> None:
    told = PAGE.read_text(encoding="utf-8")
    assert told == page(), "python -m tests.project.api_fields writes it anew"
