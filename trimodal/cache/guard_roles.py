"""Whether the terms of two questions play the same parts: from and to, before and after, who does what to whom.

Terms may change places only where the words around them say why that is no other question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trimodal.cache.guard_reading import Reading, Term
from trimodal.cache.guard_text import word_set

_ALIKE = tuple(
    frozenset(words.split(" "))
    for words in (
        " in on at of within inside during",
        " between of among",
        " about on of",
        " around",
        " versus",
        "for of",
        "with in",
        "with by via through",
        "with on",
        "on for",
        "by through via over on",
        "to into onto toward towards",
        "until till",
        "on over onto upon",
        "behind in",
    )
)
"""Prepositions that may stand for each other; the first of some is none at all."""
_GENITIVE = frozenset({"of", "for", "in"})
_EITHER_VOICE = word_set("""form develop open close shut break start begin stop end finish freeze melt boil cook bake burn dry change move grow
    increase decrease drop spread crash load run charge update connect disconnect turn_on turn_off shrink expand blur
    collapse complete expire install not_work break locate situate call name score damage wear""")
"""Verbs that say the same of what does them and of what they are done to: clouds form, clouds are formed."""
_PHRASE = 3
"""Terms in a noun phrase, at most."""


@dataclass(frozen=True)
class _Place:
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
        return self.index == 0 or (len(after) < _PHRASE and not any(term.marker for term in after))


def same_roles(ours: Reading, theirs: Reading, found: Mapping[int, int]) -> bool:
    """Whether each term has the part that the one that says the same has in the other question.

    Args:
        found: index of a term of `ours` → index of the term of `theirs` that says the same.
    """
    if not _same_voices(ours, theirs, found):
        return False
    back = {other: one for one, other in found.items()}
    pairs = [(_Place(ours.terms, one), _Place(theirs.terms, other)) for one, other in sorted(found.items())]
    for one, other in pairs:
        fits = (
            _fits(one.term, other.term)
            or _inherits(one, other, found)
            or _inherits(other, one, back)
            or _agent(one, other, back)
            or _agent(other, one, found)
        )
        if not (fits or _compounded(one, other, back) or _compounded(other, one, found)):
            return False
        if _turned(one.term, other.term) or _turned(other.term, one.term):
            return False
        owners = _owner(one.term, ours), _owner(other.term, theirs)
        if all(owners) and owners[0] != owners[1]:
            return False
    for position, (a, a2) in enumerate(pairs):
        for b, b2 in pairs[position + 1 :]:
            if a2.index > b2.index and not (_may_swap(a, b, b2, a2) or _may_swap(b2, a2, a, b)):
                return False
    return _same_persons(ours, theirs)


def _same_voices(ours: Reading, theirs: Reading, found: Mapping[int, int]) -> bool:
    """Whether what is in front of a verb does it, or has it done to it, in both: lions eat, lions are eaten."""
    for one, other in found.items():
        mine, his = ours.terms[one], theirs.terms[other]
        if mine.passive == his.passive or {mine.text, his.text} & _EITHER_VOICE:
            continue
        if mine.doer or his.doer:
            continue  # What is in front of "I need" is what I need.
        if any(term.agent for term in (*ours.terms, *theirs.terms)):
            continue  # Who does it is said: see `_agent`.
        for index, mate in found.items():
            if index < one and mate < other and _plain(ours.terms[index]) and _plain(theirs.terms[mate]):
                return False
    return True


def _plain(term: Term) -> bool:
    return (
        not term.marker and not term.measure and not term.adjective and term.kind in ("word", "name", "code")
    )


def _fits(one: Term, other: Term) -> bool:
    first, second = one.marker, other.marker
    if first == second:
        return True
    if one.agent or other.agent:
        return False
    if any(first in alike and second in alike for alike in _ALIKE):
        return True
    # "from A and B": what governs the first governs the second.
    return (one.joined != "" and not first) or (other.joined != "" and not second)


def _inherits(one: _Place, other: _Place, found: Mapping[int, int]) -> bool:
    """Whether an adjective or a word left over stands between `one` and the preposition of `other`: of a crashed pod."""
    before = one.terms[one.index - 1] if one.index else None
    if before is None or one.term.marker or before.clause != one.term.clause:
        return False
    return before.marker == other.term.marker and (
        before.adjective or before.past or one.index - 1 not in found
    )


def _agent(doer: _Place, other: _Place, found: Mapping[int, int]) -> bool:
    """Whether `doer` is behind a participle ("by plants"), and `other` in front of that verb."""
    verb = found.get(doer.index - 1)
    return doer.term.agent and verb is not None and not other.terms[verb].passive and other.index < verb


def _compounded(behind: _Place, other: _Place, found: Mapping[int, int]) -> bool:
    """Whether `behind` is joined to its noun by a preposition ("recipe for hummus"), and `other` by its place."""
    if behind.term.marker not in _GENITIVE or other.term.marker or other.term.passive:
        return False
    heads = {found.get(index) for index in range(max(0, behind.index - _PHRASE), behind.index)}
    return any(
        index in heads for index in range(other.index + 1, min(other.index + _PHRASE, len(other.terms)))
    )


def _may_swap(a: _Place, b: _Place, b2: _Place, a2: _Place) -> bool:
    """Whether terms in the order a, b of one question may be in the order b2, a2 in the other."""
    every = (a.term, b.term, a2.term, b2.term)
    if any(term.measure or term.bare for term in every):
        return True
    if a.term.marker and b.term.marker and (a.term.marker, b.term.marker) == (a2.term.marker, b2.term.marker):
        return True  # from Paris to London: to London from Paris
    for mine, his in ((a, a2), (b, b2)):
        said = mine.term.marker and mine.term.marker == his.term.marker
        if (said or mine.term.kind in ("date", "unit")) and mine.at_edge and his.at_edge:
            return True  # in Python, sort a list: sort a list in Python
    return (
        _coordinate(a, b, b2, a2)
        or _compound(a, b, b2, a2)
        or _said_of(a, b, b2, a2)
        or _passive(a, b, b2, a2)
        or _topic(a, b, b2, a2)
    )


def _coordinate(a: _Place, b: _Place, b2: _Place, a2: _Place) -> bool:
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


def _compound(a: _Place, b: _Place, b2: _Place, a2: _Place) -> bool:
    """Refund policy: policy on refunds."""
    near = b.index - a.index < _PHRASE and not any(term.marker for term in b.terms[a.index + 1 : b.index + 1])
    behind = [term.marker for term in a2.terms[b2.index + 1 : a2.index + 1]]
    marked = [index for index, marker in enumerate(behind) if marker]
    return (
        near
        and len(behind) <= _PHRASE
        and len(marked) == 1
        and marked[0] < 2
        and behind[marked[0]] in _GENITIVE
    )


def _said_of(a: _Place, b: _Place, b2: _Place, a2: _Place) -> bool:
    """Fresh basil: basil that is fresh. `a` is the adjective, right in front of its noun."""
    if not (a.term.attributive and a2.term.adjective) or b.term.attributive or a.index + 1 >= len(a.terms):
        return False
    return b.index == a.index + 1 or bool(b2.term.marker and b.term.marker)


def _passive(a: _Place, b: _Place, b2: _Place, a2: _Place) -> bool:
    """You water a cactus: a cactus is watered. `a` is the verb, then its object; or its doer and then the verb."""
    if a2.term.passive and not a.term.passive:
        return True
    return b2.term.passive and not b.term.passive and a2.term.agent


def _topic(a: _Place, b: _Place, b2: _Place, a2: _Place) -> bool:
    """Python reverse a list: reverse a list in Python."""
    return (
        a.index == 0
        and bool(b.term.marker) == bool(b2.term.marker)
        and _fits(b.term, b2.term)
        and not a.term.marker
        and a2.term.marker in ("in", "on", "with")
        and a2.at_edge
    )


def _turned(one: Term, other: Term) -> bool:
    """I call the bank: the bank calls me."""
    return one.doer != "" and one.doer == other.object and not one.object and not other.doer


def _owner(term: Term, reading: Reading) -> str:
    return "first" if term.owner == "second" and _general(reading) else term.owner


def _general(reading: Reading) -> bool:
    """Whether "you" may be anybody: how do you reset your password."""
    return "second" in reading.persons and "first" not in (
        *reading.persons,
        *(term.owner for term in reading.terms),
    )


def _same_persons(ours: Reading, theirs: Reading) -> bool:
    if {*ours.persons} & {"he", "she"} != {*theirs.persons} & {"he", "she"}:
        return False
    if len({*ours.persons}) > 1 and len({*theirs.persons}) > 1:
        return _once(ours.persons) == _once(theirs.persons)
    return True


def _once(persons: Sequence[str]) -> list[str]:
    return [person for index, person in enumerate(persons) if index == 0 or persons[index - 1] != person]
