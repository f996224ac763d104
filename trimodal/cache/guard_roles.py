"""Whether the terms of two questions play the same parts: from and to, before and after, who does what to whom.

Terms may change places only where the words around them say why that is no other question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimodal.cache.guard_reading import Reading, Term

_WEAK = (
    frozenset({"in", "on", "at", "of", "within", "inside", "during", ""}),
    frozenset({"with", "in", "on", "at", "of", "", "by", "via", "through"}),
    frozenset({"for", "of", "", "in", "to_verb"}),
    frozenset({"about", "on", "of", ""}),
    frozenset({"to", "into", "onto"}),
    frozenset({"to", "toward", "towards"}),
    frozenset({"until", "till"}),
    frozenset({"on", "over", "onto", "upon"}),
    frozenset({"between", "", "of", "among"}),
    frozenset({"around", ""}),
    frozenset({"as", ""}),
    frozenset({"from", "of"}),
    frozenset({"versus", ""}),
)
"""Prepositions that may stand for each other; "" is none at all."""
_STRONG_PAIRS = frozenset({"by"})
_GENITIVE = frozenset({"of", "in", "on", "for", "about", "at", "to"})


def same_roles(ours: Reading, theirs: Reading, found: Mapping[int, int]) -> bool:
    """Whether each term has the part that the one that says the same has in the other question."""
    pairs = sorted(found.items())
    for one, other in pairs:
        if not _fits(ours.terms[one], theirs.terms[other]):
            return False
        owners = {ours.terms[one].owner, theirs.terms[other].owner}
        if {"first", "second"} <= owners and (_both_owners(ours) or _both_owners(theirs)):
            return False
    for place, (one, other) in enumerate(pairs):
        for later, another in pairs[place + 1 :]:
            if other > another and not _may_swap(ours.terms, one, later, theirs.terms, another, other):
                return False
    return _same_persons(ours.persons, theirs.persons)


def _fits(one: Term, other: Term) -> bool:
    first, second = one.marker, other.marker
    if first == second or any(first in weak and second in weak for weak in _WEAK):
        return True
    # "A and B": what governs the first governs the second.
    return (one.joined != "" and not first) or (other.joined != "" and not second)


def _may_swap(ours: Sequence[Term], a: int, b: int, theirs: Sequence[Term], b2: int, a2: int) -> bool:
    """Whether terms a … b of `ours` may be b … a in `theirs` (indices in the order of each)."""
    one, two, one2, two2 = ours[a], ours[b], theirs[a2], theirs[b2]
    if one.marker and two.marker and one.marker == one2.marker and two.marker == two2.marker:
        return True  # from Paris to London: to London from Paris
    for mine, his, at, at2 in ((one, one2, a, a2), (two, two2, b, b2)):
        moved = mine.kind in ("date", "unit") or (mine.marker and mine.marker == his.marker)
        if moved and _at_edge(ours, at) and _at_edge(theirs, at2):
            return True  # in Python, sort a list: sort a list in Python
    if b == a + 1 and not two.marker and one2.marker in _GENITIVE and a2 > b2:
        return True  # refund policy: policy on refunds
    if a2 == b2 + 1 and not one2.marker and two.marker in _GENITIVE:
        return True  # policy on refunds: refund policy
    if b == a + 1 and a2 == b2 + 1 and two.joined and one2.joined:
        return True  # A and B: B and A
    return _passive(ours, a, b, theirs, a2, b2)


def _at_edge(terms: Sequence[Term], index: int) -> bool:
    """Whether a phrase of at most three terms that begins here is the first or the last of the question."""
    return index == 0 or (len(terms) - index <= 3 and not any(term.marker for term in terms[index + 1 :]))


def _passive(ours: Sequence[Term], a: int, b: int, theirs: Sequence[Term], a2: int, b2: int) -> bool:
    """How is X made: how do you make X. Only where nothing but the doer, unnamed, was in front."""
    if ours[b].passive and not theirs[b2].passive:
        return not any(term.marker == "by" for term in ours[b:]) and b2 == 0
    if theirs[a2].passive and not ours[a].passive:
        return not any(term.marker == "by" for term in theirs[a2:]) and a == 0
    return False


def _both_owners(reading: Reading) -> bool:
    return {"first", "second"} <= {term.owner for term in reading.terms}


def _same_persons(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    if {"he", "she"} & {*ours, *theirs} and {*ours} & {"he", "she"} != {*theirs} & {"he", "she"}:
        return False
    if len({*ours}) > 1 and len({*theirs}) > 1:
        return _once(ours) == _once(theirs)
    return True


def _once(persons: Sequence[str]) -> list[str]:
    return [person for index, person in enumerate(persons) if index == 0 or persons[index - 1] != person]
