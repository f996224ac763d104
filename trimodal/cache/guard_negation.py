"""Whether two questions deny the same: as often, and the same thing."""

from __future__ import annotations

from collections.abc import Mapping

from trimodal.cache.guard_terms import Reading


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
    """The term behind a negation, if it is in its clause; else the one before it."""
    for index in (behind, behind - 1):
        if 0 <= index < len(reading.terms) and reading.terms[index].clause == clause:
            return {index}
    return {behind} if behind < len(reading.terms) else {behind - 1}
