"""Writes a word of one question as the other question has it, where it is mistyped or abbreviated there.

A small encoder knows few typing mistakes and abbreviations: of 36 pairs each it found none and one. What a
word could be is told by the other question: it is replaced only by words that this one lacks.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Sequence

from trimodal.judge.language import function_words
from trimodal.judge.normaliser import normalise

_WORD = re.compile(r"(?<![\w'’.-])[a-z]{2,24}(?![\w'’-])")
_PAUSE = re.compile(r"(?<=[a-z])[,;:.…]+(?=\s|$)")  # not "!", which is part of sort! and n!
_CAPITAL = re.compile(r"(?<=[\w,;] )[A-Z][A-Za-z]+")
_ALL_CAPITALS = re.compile(r"\b[A-Z]{2,}\b")
_GAP = re.compile(r"[\s-]+")
_SMALL = frozenset(("of", "and", "the", "for", "to", "in"))
_MOST_WORDS = 160  # of both: each is held against the others'; no judge here reads more tokens
# Two letters are the initials of too much: a PC is no pin code.
_SHORTEST_TYPO, _LONGEST_CLIPPED, _INITIALS = 4, 4, range(3, 7)
Span = tuple[int, int, str]  # where a word begins and ends in its text, and the word


def read(one: str, other: str, known: Container[str]) -> tuple[str, str]:
    """Both questions as the judge reads them: normalised, each with its odd words as the other one has them.

    Args:
        known: words; one that is not among them may be a mistake for one that is. A name is none.
    """
    text, beside = normalise(one), normalise(other)
    words, theirs = _words(text), _words(beside)
    if len(words) + len(theirs) > _MOST_WORDS or {word[2] for word in words} == {word[2] for word in theirs}:
        return text, beside
    names = _names(one) | _names(other)
    return (
        _rewritten(text, words, beside, theirs, known, names, _capitals(one)),
        _rewritten(beside, theirs, text, words, known, names, _capitals(other)),
    )


def alike(one: str, other: str) -> bool:
    """Whether two questions, as they are read, are the same but for punctuation between words."""
    return one == other or _PAUSE.sub(" ", one).split() == _PAUSE.sub(" ", other).split()


def _names(text: str) -> set[str]:
    """Words with a capital inside a sentence, in lower case; none where every word has one."""
    if text.isupper() or all(word[0].isupper() for word in text.split()):
        return set()
    return {name.lower() for name in _CAPITAL.findall(text)}


def _capitals(text: str) -> set[str]:
    """Words all in capitals, in lower case; none where the whole text is."""
    return set() if text.isupper() else {word.lower() for word in _ALL_CAPITALS.findall(text)}


def _words(text: str) -> list[Span]:
    return [(found.start(), found.end(), found[0]) for found in _WORD.finditer(text)]


def _rewritten(
    text: str,
    words: Sequence[Span],
    other: str,
    theirs: Sequence[Span],
    known: Container[str],
    names: Container[str],
    capitals: Container[str],
) -> str:
    have, there = ({word for _, _, word in each} for each in (words, theirs))
    lacking = {word for word in there - have if word in known}
    parts, end = [], 0
    for start, stop, word in words:
        if word in there:
            continue
        meant = "" if word in known or word in names else _only(word, lacking, names)
        if not meant and (word not in known or word in capitals):  # a cat is no "car and truck"
            meant = _spelt_out(word, theirs, have, other)
        if meant:
            parts += [text[end:start], meant]
            end = stop
    return "".join([*parts, text[end:]])


def _only(word: str, lacking: Collection[str], names: Container[str]) -> str:
    """The one word that `word` is a mistake for, or short for; "": none, or several."""
    found = [
        meant for meant in lacking if (meant not in names and _mistyped(word, meant)) or _clipped(word, meant)
    ]
    return found[0] if len(found) == 1 else ""


def _mistyped(word: str, meant: str) -> bool:
    """Whether one letter is missing, too many, another one or changed places; an ending is no mistake."""
    if min(len(word), len(meant)) < _SHORTEST_TYPO or word[0] != meant[0] or abs(len(word) - len(meant)) > 1:
        return False
    same = next((at for at, (a, b) in enumerate(zip(word, meant, strict=False)) if a != b), None)
    if same is None or same >= len(meant) - 1:
        return False
    rest, other = word[same:], meant[same:]
    swapped = rest[:2] == other[1::-1] and rest[2:] == other[2:]
    return swapped or rest[1:] == other[1:] or rest[1:] == other or rest == other[1:]


def _clipped(word: str, meant: str) -> bool:
    """Whether `word` has the first and last letters of `meant` and some of those between: appt, bldg, hrs.

    The s of two plurals says nothing, vms are no volumes; a beginning of `meant` may stand before it: args.
    """
    if word[-1] == meant[-1] == "s" and not meant.startswith(word[:-1]):
        word, meant = word[:-1], meant[:-1]
    if (
        len(word) > _LONGEST_CLIPPED
        or len(meant) < len(word) + 2
        or word[0] != meant[0]
        or word[-1] != meant[-1]
    ):
        return False
    letters = iter(meant)
    return all(letter in letters for letter in word)


def _spelt_out(word: str, words: Sequence[Span], have: Container[str], text: str) -> str:
    """The words in a row whose initials are `word`, as they stand in `text`; "": there are none."""
    if len(word) not in _INITIALS or word in function_words("en"):
        return ""
    for first in range(len(words)):
        if last := _last_initial(word, words, first, have, text):
            return text[words[first][0] : words[last][1]]
    return ""


def _last_initial(word: str, words: Sequence[Span], first: int, have: Container[str], text: str) -> int:
    """Place of the last of the words from `first` on whose initials are `word`; 0: they are not.

    Small words between them may count or not, as in asap and in USA.
    """
    place, told, large = first, 0, 0
    while place < len(words) and told < len(word):
        start, _, each = words[place]
        small = each in _SMALL
        if place - first >= 2 * len(word):
            return 0
        if place > first and not _GAP.fullmatch(text[words[place - 1][1] : start]):
            return 0
        if each in have and not small:
            return 0
        if each[0] == word[told]:
            told += 1
            large += not small
        elif place == first or not small:
            return 0
        place += 1
    return place - 1 if told == len(word) and large > 1 else 0


def known_words(vocabulary: Iterable[str]) -> frozenset[str]:
    """Words that a tokenizer has as a whole."""
    return frozenset(word for word in vocabulary if word.isascii() and word.isalpha())
