"""Judges whether two near questions may have the same answer: it refuses whatever it cannot explain.

A miss costs time, a wrong answer costs trust: in doubt, no. It knows nothing of vectors,
thresholds and stores. English only; anything else passes only when it is the same text.
"""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from typing import Literal, cast, get_args

from trimodal.cache.guard_asked import same_question
from trimodal.cache.guard_matching import implied, matched, reason, rejoined, spelled_out
from trimodal.cache.guard_negation import same_negations
from trimodal.cache.guard_reading import read
from trimodal.cache.guard_roles import same_roles
from trimodal.cache.guard_text import NotEnglish

Reason = Literal["number", "unit", "date", "name", "negation", "antonym", "roles", "subject"]
"""Why two questions are not alike, for metrics and tables."""
REASONS: tuple[Reason, ...] = get_args(Reason)


class Guard:
    """Stateless but for the lexicon, which is loaded with the first pair; any thread may call it."""

    def judge(self, asked: str, stored: str) -> Reason | Literal[""]:
        """ "" when an answer to `stored` also answers `asked`, else the first reason against it."""
        if _plain(asked) == _plain(stored):
            return ""
        try:
            ours, theirs = read(asked), read(stored)
        except NotEnglish:
            return "subject"
        ours = replace(ours, terms=rejoined(ours.terms, theirs.terms))
        theirs = replace(theirs, terms=rejoined(theirs.terms, ours.terms))
        found = matched(ours.terms, theirs.terms)
        shared = [ours.terms[index] for index in found]
        left = [t for i, t in enumerate(ours.terms) if i not in found and not implied(t, shared)]
        missing = [
            t for i, t in enumerate(theirs.terms) if i not in {*found.values()} and not implied(t, shared)
        ]
        left, missing = spelled_out(left, missing)
        missing, left = spelled_out(missing, left)
        if why := reason(left, missing):
            return cast(Reason, why)
        if not same_negations(ours, theirs, found):
            return "negation"
        if not same_roles(ours, theirs, found):
            return "roles"
        return "" if found and same_question(ours, theirs) else "subject"


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())
