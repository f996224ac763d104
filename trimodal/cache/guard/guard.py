"""Judges whether two similar questions may have the same answer, and refuses whatever it cannot explain.

In doubt it says no: a miss costs time, a wrong answer costs trust. It reads English only; anything else
passes only when it is the same text.
"""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from typing import Literal, NamedTuple, cast, get_args

from trimodal.cache.guard.asked import same_negations, same_question
from trimodal.cache.guard.matching import implied, matched, reason, rejoined, spelled_out
from trimodal.cache.guard.reading.reader import read
from trimodal.cache.guard.reading.terms import Reading, Term
from trimodal.cache.guard.reading.words import NotEnglish
from trimodal.cache.guard.rewording import learned_with, reworded
from trimodal.cache.guard.roles import same_order, same_roles

Reason = Literal["number", "unit", "date", "name", "negation", "antonym", "roles", "subject"]
"""Why two questions are not alike, for metrics and tables."""
REASONS: tuple[Reason, ...] = get_args(Reason)


class Guard:
    """Judges pairs of questions. Without state of its own; any thread may call it.

    Args:
        max_false_hit: bound of wrong answers among rewordings that no rule explains; 0: none passes.
        checkpoint: SHA-256 of the embedding model whose similarities it is given. None: the one that its
            model of rewordings was learned with; for any other, only rules count.
    """

    def __init__(self, max_false_hit: float = 0.01, checkpoint: str | None = None) -> None:
        known = checkpoint is None or checkpoint == learned_with()
        self._max_false_hit = max_false_hit if known else 0.0

    def judge(self, asked: str, stored: str, similarity: float = 0.0) -> Reason | Literal[""]:
        """ "" when an answer to `stored` also answers `asked`, else the first reason against it.

        Args:
            similarity: cosine of the two; a rewording that no rule explains needs a high one.
        """
        if _plain(asked) == _plain(stored):
            return ""
        # A rule may see in one order what it misses in the other, and the order is chance.
        return self._against(asked, stored, similarity) or self._against(stored, asked, similarity)

    def _against(self, asked: str, stored: str, similarity: float) -> Reason | Literal[""]:
        try:
            pair = compare(asked, stored)
        except NotEnglish:
            return "subject"
        if pair.reason != "subject":
            return cast("Reason | Literal['']", pair.reason)
        loose = reworded(*pair.difference, (asked, stored), similarity, self._max_false_hit)
        return "" if loose else "subject"


class Compared(NamedTuple):
    """Two questions beside one another.

    Attributes:
        difference: both readings, index of a term → index of the other's that says the same, and what is left
            over on each side.
        reason: the first that the rules have against them; "" when none.
    """

    difference: tuple[Reading, Reading, dict[int, int], list[Term], list[Term]]
    reason: str


def compare(asked: str, stored: str) -> Compared:
    """Compares a pair by the rules. Raises NotEnglish."""
    ours, theirs = read(asked), read(stored)
    ours = replace(ours, terms=rejoined(ours.terms, theirs.terms))
    theirs = replace(theirs, terms=rejoined(theirs.terms, ours.terms))
    found = matched(ours.terms, theirs.terms)
    shared = [ours.terms[index] for index in found]
    left = [t for i, t in enumerate(ours.terms) if i not in found and not implied(t, shared)]
    missing = [t for i, t in enumerate(theirs.terms) if i not in {*found.values()} and not implied(t, shared)]
    left, missing = spelled_out(left, missing)
    missing, left = spelled_out(missing, left)
    why = reason(left, missing)
    if why in ("", "subject"):
        if not same_negations(ours, theirs, found):
            why = "negation"
        elif not same_roles(ours, theirs, found) and not (why and same_order(ours, theirs, found)):
            why = "roles"
        elif not found or not same_question(ours, theirs):
            why = "subject"
    return Compared((ours, theirs, found, left, missing), why)


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())
