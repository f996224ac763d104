"""Finds for each term of a question the one in the other question that says the same, and what is left over.

A term is matched by the same word, by one of its group, or by its misspelling. What is left over decides the
reason. `roles` compares the order of the terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trimodal.cache.guard.lexicon.lexicon import GROUPS, is_known, keys, opposite
from trimodal.cache.guard.lexicon.small_words import SOFT
from trimodal.cache.guard.lexicon.word_lists import word_set
from trimodal.cache.guard.reading.terms import Term

_IMPLIED = {
    "python": word_set(
        """dict tuple kwargs args dataclass decorator list_comprehension comprehension generator iterator
    asyncio pandas numpy pip venv virtualenv str pathlib itertools functools gil walrus docstring f
    =*args =**kwargs =__init__ def lambda pickle django flask pytest unittest context_manager
    keyerror =KeyError =IndexError =TypeError =ValueError slice yield elif"""
    ),
    "git": word_set("commit rebase stash cherry squash branch merge_conflict submodule"),
    "kubernetes": word_set("pod kubectl helm configmap kubelet"),
    "docker": word_set("container dockerfile"),
    "linux": word_set("systemd apt chmod sudo bash cron crontab systemctl"),
}
"""Word → words that imply it."""


def matched(ours: Sequence[Term], theirs: Sequence[Term]) -> dict[int, int]:
    """Index in `ours` → index in `theirs` of the term that says the same; the same words first."""
    found: dict[int, int] = {}
    taken: set[int] = set()
    for alike in (_same, _alike, _misspelt):
        for index, term in enumerate(ours):
            if index in found:
                continue
            places = [
                place for place, other in enumerate(theirs) if place not in taken and alike(term, other)
            ]
            if places:
                # Of several, the one that is governed alike and nearest to the same place.
                place = min(places, key=lambda at: (theirs[at].marker != term.marker, abs(at - index)))
                found[index] = place
                taken.add(place)
    return found


def _same(one: Term, other: Term) -> bool:
    return one.text == other.text and one.degree == other.degree


def _alike(one: Term, other: Term) -> bool:
    return bool(one.keys & other.keys) and one.degree == other.degree


def _misspelt(one: Term, other: Term) -> bool:
    return one.kind == other.kind == "word" and (_typo(one.text, other.text) or _typo(other.text, one.text))


def _typo(wrong: str, right: str) -> bool:
    """Whether `wrong` is no word, and `right` one that it is one slip away from.

    Only a common word may be meant where a letter is wrong; of a rare one, two neighbours may
    have changed places or one of a pair be missing: names that are alike differ by more.
    """
    if min(len(wrong), len(right)) < 5 or wrong[0] != right[0] or is_known(wrong) or not is_known(right):
        return False
    slips = _slips(wrong, right)
    return slips in ("swap", "pair") or (slips == "letter" and right in GROUPS)


def _slips(one: str, other: str) -> str:
    """How two spellings differ: swap, pair, letter, or "" for more than one slip."""
    short, long = sorted((one, other), key=len)
    start = next((index for index, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(short) == len(long):
        if (
            short[start + 2 :] == long[start + 2 :]
            and short[start : start + 2] == long[start : start + 2][::-1]
        ):
            return "swap"
        return "letter" if short[start + 1 :] == long[start + 1 :] else ""
    if len(long) - len(short) == 1 and short[start:] == long[start + 1 :]:
        return "pair" if start and long[start] == long[start - 1] else "letter"
    return ""


def soft(term: Term) -> bool:
    """Whether a question says the same without the term."""
    return term.kind == "word" and term.text in SOFT and not term.degree


def rejoined(terms: Sequence[Term], others: Sequence[Term]) -> list[Term]:
    """`terms` with two neighbours made one where the other question has them as one: tie break, tiebreak."""
    whole = {term.text for term in others if term.kind == "word"}
    result: list[Term] = []
    for term in terms:
        if result and result[-1].kind == term.kind == "word" and not term.marker:
            joined = result[-1].text + term.text
            if joined in whole:
                result[-1] = replace(result[-1], text=joined, keys=keys(joined))
                continue
        result.append(term)
    return result


def spelled_out(left: Sequence[Term], missing: Sequence[Term]) -> tuple[list[Term], list[Term]]:
    """Both without an abbreviation and the words whose initials it has: VM, virtual machine."""
    short = [term for term in left if term.kind in ("name", "word") and 2 <= len(term.text) <= 5]
    parts = [part for term in missing for part in term.text.split("_")]
    for term in short:
        if term.text == "".join(part[:1] for part in parts) and len(parts) > 1:
            return [other for other in left if other is not term], []
    return list(left), list(missing)


def implied(term: Term, among: Sequence[Term]) -> bool:
    """Whether the other words say anyway what `term` does: a dict is one in Python."""
    return any(not _IMPLIED.get(term.text, frozenset()).isdisjoint(other.keys) for other in among)


def reason(ours: Sequence[Term], theirs: Sequence[Term]) -> str:
    """Why what is left over of two questions keeps them apart; "" when nothing is."""
    left = [term for term in (*ours, *theirs) if not soft(term)]
    if not left:
        # Something on both sides that the other does not explain is too much to pass over.
        return "subject" if ours and theirs else ""
    kinds = {term.kind for term in left}
    for kind in ("number", "unit", "date"):
        if kind in kinds:
            return kind
    if any(opposite(one.text, other.text) for one in ours for other in theirs):
        return "antonym"
    return "name" if kinds & {"name", "code"} else "subject"
