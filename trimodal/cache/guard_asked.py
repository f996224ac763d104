"""Whether two questions ask for the same: how or why, whether or when, may or must, then or now."""

from __future__ import annotations

from trimodal.cache.guard_reading import Reading

_OPEN = frozenset({"@how", "@what", "@wish"})
"""What a question that names only its subject may ask for ("refund policy", "reset password")."""
_TIMELESS = frozenset({"@how", "@why"})


def same_question(ours: Reading, theirs: Reading) -> bool:
    """Whether both ask for the same, of whatever subject."""
    asked, other = _asked(ours), _asked(theirs)
    if asked != other and not (min(asked, other, key=len) == set() and max(asked, other, key=len) <= _OPEN):
        return False
    if _modal(ours, asked) != _modal(theirs, other):
        return False
    joins, others = ours.joins & {"and", "or"}, theirs.joins & {"and", "or"}
    if joins and others and joins != others:
        return False
    return bool((asked | other) & _TIMELESS) or _tense(ours) == _tense(theirs)


def _asked(reading: Reading) -> set[str]:
    asks = reading.asks - {"@wish"} if len(reading.asks) > 1 else set(reading.asks)
    if "@wish" in asks:
        return {"@how"}
    # What is asked for beside how, why or when is part of the same question.
    return asks - {"@what"} if len(asks) > 1 else asks


def _modal(reading: Reading, asked: set[str]) -> set[str]:
    if asked & {"@how", "@where", "@why"}:
        return set()
    return reading.modals - {"@should"} if asked else reading.modals


def _tense(reading: Reading) -> str:
    if "future" in reading.tenses:
        return "future"
    # Without an auxiliary the verb itself says it: who won, who wins.
    past = "past" in reading.tenses or (not reading.tenses and any(term.past for term in reading.terms))
    return "past" if past else ""
