"""Reads the rules of rules.txt: id, what it means for the server, what is wrong and what to do.

Ids are not given again once they were used: 00x the file itself, 01x and 02x one model, 03x batching,
04x sequences, 05x and 06x ensembles, 07x profiles, 08x knobs, 09x engines, 11x Python models, 12x the
server's command line. "refused" is an error for which the server does not load the model; with "error" it
loads, and breaks when it is used. docs/check.md has the same table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from trimodal.check.findings import Rule
from trimodal.report.findings import Severity


def _read() -> Iterator[Rule]:
    for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        id, kind, title, fix = line.split(" | ")
        refused = kind == "refused"
        yield Rule(id, cast(Severity, "error" if refused else kind), title, fix, refused)


RULES: dict[str, Rule] = {rule.id: rule for rule in _read()}


def select_rules(select: tuple[str, ...], ignore: tuple[str, ...]) -> frozenset[str]:
    """Ids that are looked for, by ids or their beginnings. Raises: ValueError naming what matches none."""
    for prefix in (*select, *ignore):
        if not any(rule.startswith(prefix) for rule in RULES):
            raise ValueError(f"{prefix} is no rule: they are {min(RULES)} to {max(RULES)}, see docs/check.md")
    chosen = {rule for rule in RULES if not select or rule.startswith(select)}
    return frozenset(rule for rule in chosen if not (ignore and rule.startswith(ignore)))
