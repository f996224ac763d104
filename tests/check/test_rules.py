"""docs/check.md shows the rules as they are."""

from __future__ import annotations

import re
from pathlib import Path

from trimodal.check.rules import RULES

PAGE = Path(__file__).parents[2] / "docs" / "check.md"
ROW = re.compile(r"^\| (TRI\d{3}) \| (\w+) \| (.+?) \| (.+?) \|$", re.MULTILINE)


def test_the_page_shows_every_rule() -> None:
    shown = {rule: (severity, title, fix) for rule, severity, title, fix in ROW.findall(PAGE.read_text())}
    expected = {}
    for rule in RULES.values():
        severity = "refused" if rule.refused else rule.severity
        expected[rule.id] = (severity, rule.title, rule.fix.replace("|", "\\|"))
    assert shown == expected


def test_the_page_says_how_many() -> None:
    assert f"{len(RULES)} rules" in PAGE.read_text()
