"""Compares what two questions ask for (how or why, may or must, then or now) and what they deny."""

from __future__ import annotations

from collections.abc import Mapping

from trimodal.cache.guard.reading.terms import Reading

_OPEN = frozenset({"@whether", "@how", "@what", "@wish", "@way", "@does"})
"""What a question that names only its subject may ask for ("refund policy", "reset password")."""
_CLOSER = frozenset({"@time", "@year", "@day", "@safe", "@does", "@whom"})
"""Says more closely what another `@` word says: one of two questions may go without."""
_TIMELESS = frozenset({"@how", "@why", "@way"})


def same_question(ours: Reading, theirs: Reading) -> bool:
    """Whether both ask for the same, whatever their subjects."""
    if not _same_asks(ours, theirs) or not _same_joins(ours, theirs):
        return False
    if (ours.asks | theirs.asks) & _TIMELESS:
        return True
    times = {_tense(ours), _tense(theirs)}
    if ours.conditional and theirs.conditional and times == {"future", ""}:
        return True  # will it burn if …: does it burn if …
    return len(times) == 1 or (
        times == {"past", ""} and not (ours.tenses and theirs.tenses) and _names_only(ours, theirs)
    )


def _same_asks(ours: Reading, theirs: Reading) -> bool:
    closer, other = ours.asks & _CLOSER - {"@whom"}, theirs.asks & _CLOSER - {"@whom"}
    if closer and other and closer != other:
        return False
    mine, his = _asked(ours), _asked(theirs)
    if "@way" in mine | his:  # "is there a way to": can I, or how do I
        return mine | his <= {"@way", "@how", "@whether"} and ours.modals | theirs.modals <= {"@can"}
    both = mine | his
    if mine != his and (
        (mine and his) or not (both <= _OPEN or (both == {"@why"} and _complaint(ours, theirs)))
    ):
        return False
    return _modal(ours, both) == _modal(theirs, both)


def _complaint(ours: Reading, theirs: Reading) -> bool:
    """Whether the side that asks for nothing complains of something of one's own: my basil dies."""
    statement = theirs if ours.asks else ours
    return bool(statement.negations) or "first" in {term.owner for term in statement.terms}


def _asked(reading: Reading) -> set[str]:
    asks = reading.asks - _CLOSER
    if "@wish" in asks:
        asks = asks - {"@wish"} or {"@how"}
    # What is asked for beside how, why or when is part of the same question.
    asks = asks - {"@what"} if len(asks) > 1 else asks
    return asks or ({"@whether"} if reading.closed else set())


def _modal(reading: Reading, asked: set[str]) -> set[str]:
    if asked & {"@how", "@where", "@why"}:
        return set()
    # What one should do is what one does.
    return reading.modals - {"@should"} if asked else reading.modals


def _same_joins(ours: Reading, theirs: Reading) -> bool:
    joins, others = ours.joins & {"and", "or"}, theirs.joins & {"and", "or"}
    return not joins or not others or joins == others


def _names_only(ours: Reading, theirs: Reading) -> bool:
    """Whether the one without an auxiliary asks when by a noun: the year of the invention."""
    return "@when" in (theirs.asks if ours.tenses else ours.asks)


def _tense(reading: Reading) -> str:
    if "future" in reading.tenses:
        return "future"
    # Without an auxiliary the verb itself says it: who won, who wins.
    past = "past" in reading.tenses or (
        not reading.tenses and any(term.past and not term.passive for term in reading.terms)
    )
    return "past" if past else ""


def same_negations(ours: Reading, theirs: Reading, found: Mapping[int, int]) -> bool:
    """Whether each denial of one has its own in the other, at a term that says the same.

    Args:
        found: index of a term of `ours` → index of the term of `theirs` that says the same.
    """
    if len(ours.negations) != len(theirs.negations):
        return False
    if not ours.negations or (_clauses(ours) == 1 == _clauses(theirs) and len(ours.negations) == 1):
        return True
    waiting = [_denied(theirs, clause, behind) for clause, behind in theirs.negations]
    for clause, behind in ours.negations:
        denied = {found[index] for index in _denied(ours, clause, behind) if index in found}
        match = next((other for other in waiting if denied & other), None)
        if match is None:
            return False
        waiting.remove(match)
    return True


def _clauses(reading: Reading) -> int:
    return len({term.clause for term in reading.terms})


def _denied(reading: Reading, clause: int, behind: int) -> set[int]:
    """Returns the term behind a negation, if it is in its clause; else the one before it."""
    for index in (behind, behind - 1):
        if 0 <= index < len(reading.terms) and reading.terms[index].clause == clause:
            return {index}
    return {behind} if behind < len(reading.terms) else {behind - 1}
