"""Compares the parts that the terms of two questions play: from and to, before and after, who does what.

Terms may change places only where the words around them show that it is still the same question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimodal.cache.guard.lexicon.word_lists import word_set
from trimodal.cache.guard.order import GENITIVE, PHRASE, Place, fits, may_swap
from trimodal.cache.guard.reading.terms import Reading, Term

_EITHER_VOICE = word_set(
    """form develop open close shut break start begin stop end finish freeze melt boil cook bake burn
    dry change move grow increase decrease drop spread crash load run charge update connect
    disconnect turn_on turn_off shrink expand blur collapse complete expire install not_work break
    locate situate call name score damage wear"""
)
"""Verbs that say the same of what does them and of what they are done to: clouds form, clouds are formed."""


def same_roles(ours: Reading, theirs: Reading, found: Mapping[int, int]) -> bool:
    """Whether each term has the part that the one that says the same has in the other question.

    Args:
        found: index of a term of `ours` → index of the term of `theirs` that says the same.
    """
    if not _same_voices(ours, theirs, found):
        return False
    back = {other: one for one, other in found.items()}
    pairs = [(Place(ours.terms, one), Place(theirs.terms, other)) for one, other in sorted(found.items())]
    for one, other in pairs:
        alike = (
            fits(one.term, other.term)
            or _inherits(one, other, found)
            or _inherits(other, one, back)
            or _agent(one, other, found)
            or _agent(other, one, back)
        )
        if not (alike or _compounded(one, other, found) or _compounded(other, one, back)):
            return False
        if _turned(one.term, other.term) or _turned(other.term, one.term):
            return False
        owners = _owner(one.term, ours), _owner(other.term, theirs)
        if all(owners) and owners[0] != owners[1]:
            return False
    # With the same word twice, which is which is not known: then nothing may change its place.
    texts = [term.text for term in ours.terms]
    repeated = len(set(texts)) < len(texts)
    for position, (a, a2) in enumerate(pairs):
        for b, b2 in pairs[position + 1 :]:
            if a2.index < b2.index:
                continue
            if repeated or not (may_swap(a, b, b2, a2) or may_swap(b2, a2, a, b)):
                return False
    return _same_persons(ours, theirs)


def same_order(ours: Reading, theirs: Reading, found: Mapping[int, int]) -> bool:
    """Weaker than `same_roles`, for sentences that are built anew: nothing has changed its place.

    Nor have doer and object changed places, or the person.
    """
    if not _same_voices(ours, theirs, found) or not _same_persons(ours, theirs):
        return False
    places = [found[index] for index in sorted(found)]
    turned = any(
        _turned(ours.terms[one], theirs.terms[other]) or _turned(theirs.terms[other], ours.terms[one])
        for one, other in found.items()
    )
    return not turned and places == sorted(places)


def _same_voices(ours: Reading, theirs: Reading, found: Mapping[int, int]) -> bool:
    """Whether what is in front of a verb does it in both, or in neither: lions eat, lions are eaten."""
    for one, other in found.items():
        mine, his = ours.terms[one], theirs.terms[other]
        if mine.passive == his.passive:
            continue
        if (
            mine.past
            and his.past
            and not (mine.attributive or his.attributive or "@whom" in ours.asks | theirs.asks)
        ):
            return False  # has been charged, has charged
        if {mine.text, his.text} & _EITHER_VOICE or mine.doer or his.doer:
            continue  # Before "I need" is what I need.
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


def _inherits(one: Place, other: Place, found: Mapping[int, int]) -> bool:
    """Whether an adjective or a word left over parts `one` from the preposition of `other`."""
    before = one.terms[one.index - 1] if one.index else None
    if before is None or one.term.marker or before.clause != one.term.clause:
        return False
    return before.marker == other.term.marker and (
        before.adjective or before.past or one.index - 1 not in found
    )


def _agent(doer: Place, other: Place, found: Mapping[int, int]) -> bool:
    """Whether `doer` is behind a participle ("by plants"), and `other` in front of that verb."""
    verb = found.get(doer.index - 1)
    return doer.term.agent and verb is not None and not other.terms[verb].passive and other.index < verb


def _compounded(behind: Place, other: Place, found: Mapping[int, int]) -> bool:
    """Whether a preposition joins `behind` to its noun, and `other` stands before it: hummus recipe."""
    if behind.term.marker not in GENITIVE or other.term.marker or other.term.passive or behind.term.agent:
        return False
    heads = {found.get(index) for index in range(max(0, behind.index - PHRASE), behind.index)}
    return any(
        index in heads for index in range(other.index + 1, min(other.index + PHRASE, len(other.terms)))
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
