"""Decides in what other order the terms of a question may stand without making it another question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimodal.cache.guard.reading.terms import Term

_ALIKE = tuple(frozenset(words.split(" ")) for words in (
    " in on at of within inside during", " between of among", " about on of", " around", " versus", "for of",
    "with in", "with by via through", "with on", "on for", "by via through over on",
    "to into onto toward towards", "until till", "on over onto upon", "behind in",
))  # fmt: skip
"""Prepositions that may stand for each other; the first of some is none at all."""
_KINDS = frozenset({"keyword", "operator", "decorator"})
"""What a name in a program may be told to be, before it or behind it."""
GENITIVE = frozenset({"of", "for", "in"})
PHRASE = 3
"""Terms in a noun phrase, at most."""


@dataclass(frozen=True)
class Place:
    """A term and where it is in its question."""

    terms: Sequence[Term]
    index: int

    @property
    def term(self) -> Term:
        return self.terms[self.index]

    @property
    def at_edge(self) -> bool:
        """Whether a short phrase that begins here is the first or the last of the question."""
        after = self.terms[self.index + 1 :]
        return self.index == 0 or (len(after) < PHRASE and not any(term.marker for term in after))


def fits(one: Term, other: Term) -> bool:
    first, second = one.marker, other.marker
    if first == second:
        return True
    if one.agent or other.agent:
        return False
    if any(first in alike and second in alike for alike in _ALIKE):
        return True
    # "from A and B": what governs the first governs the second.
    return (one.joined != "" and not first) or (other.joined != "" and not second)


def may_swap(a: Place, b: Place, b2: Place, a2: Place) -> bool:
    """Whether terms in the order a, b of one question may be in the order b2, a2 in the other."""
    every = (a.term, b.term, a2.term, b2.term)
    if any(term.measure or term.bare for term in every):
        return True
    markers = (a.term.marker, b.term.marker)
    if all(markers) and markers[0] == markers[1]:
        return _coordinate(a, b, b2, a2)  # in Tokyo … in Paris
    if all(markers) and markers == (a2.term.marker, b2.term.marker):
        return True  # from Paris to London: to London from Paris
    for mine, his in ((a, a2), (b, b2)):
        said = mine.term.marker and mine.term.marker == his.term.marker
        if (
            (said or mine.term.kind == "date" or mine.term.text.startswith(("q:", "u:per")))
            and mine.at_edge
            and his.at_edge
        ):
            return True  # in Python, sort a list: sort a list in Python
    return (
        _coordinate(a, b, b2, a2)
        or _compound(a, b, b2, a2)
        or _said_of(a, b, b2, a2)
        or _passive(a, b, b2, a2)
        or _topic(a, b, b2, a2)
        or _apposition(a, b, b2, a2)
    )


def _coordinate(a: Place, b: Place, b2: Place, a2: Place) -> bool:
    """A and B: B and A."""
    left, right = _sides(a.terms)
    left2, right2 = _sides(a2.terms)
    return a.index in left and b.index in right and b2.index in left2 and a2.index in right2


def _sides(terms: Sequence[Term]) -> tuple[range, range]:
    """The terms on both sides of the first "and", "or" or "versus", as far as no preposition parts them."""
    middle = next((index for index, term in enumerate(terms) if term.joined), len(terms))
    first = next((index for index in range(middle - 1, -1, -1) if terms[index].marker), 0)
    last = next((index for index in range(middle + 1, len(terms)) if terms[index].marker), len(terms))
    return range(first, middle), range(middle, last)


def _compound(a: Place, b: Place, b2: Place, a2: Place) -> bool:
    """Refund policy: policy on refunds."""
    if b.term.passive or b2.term.passive or a.term.marker != b2.term.marker:
        return False
    near = b.index - a.index < PHRASE and not any(term.marker for term in b.terms[a.index + 1 : b.index + 1])
    behind = [term.marker for term in a2.terms[b2.index + 1 : a2.index + 1]]
    marked = [index for index, marker in enumerate(behind) if marker]
    return (
        near
        and len(behind) <= PHRASE
        and len(marked) == 1
        and marked[0] < 2
        and behind[marked[0]] in GENITIVE
    )


def _said_of(a: Place, b: Place, b2: Place, a2: Place) -> bool:
    """Fresh basil: basil that is fresh. `a` is the adjective, right in front of its noun."""
    if not (a.term.attributive and a2.term.adjective) or b.term.attributive:
        return False
    return b.index == a.index + 1 or bool(b2.term.marker and b.term.marker)


def _passive(a: Place, b: Place, b2: Place, a2: Place) -> bool:
    """You water a cactus: a cactus is watered. `a` is the verb before its object, or the doer before it."""
    if a2.term.passive and not a.term.passive:
        return True
    return a2.term.agent and not any(term.passive for term in a.terms)


def _apposition(a: Place, b: Place, b2: Place, a2: Place) -> bool:
    """The keyword yield: the yield keyword."""
    if b.index != a.index + 1 or a2.index != b2.index + 1 or b.term.marker or a2.term.marker:
        return False
    return len({a.term.text, b.term.text} & _KINDS) == 1


def _topic(a: Place, b: Place, b2: Place, a2: Place) -> bool:
    """Python reverse a list: reverse a list in Python."""
    return (
        a.index == 0
        and bool(b.term.marker) == bool(b2.term.marker)
        and fits(b.term, b2.term)
        and not a.term.marker
        and a2.term.marker in ("in", "on", "with")
        and a2.at_edge
    )
