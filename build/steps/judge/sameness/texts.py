"""Reads the texts that are written by hand and lie beside this module."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

FRONTABLE = " // "


class Question(NamedTuple):
    """A question: `text` still holds its choices "{a|b}" and may mark the clause that can come first."""

    domain: str
    text: str


class Group(NamedTuple):
    """Wordings of one question; `slots` are the values that its "{name}" may take, alike in every wording."""

    domain: str
    slots: dict[str, tuple[str, ...]]
    wordings: tuple[str, ...]


class WordPair(NamedTuple):
    """Two ways to write a word; `both` if either may stand for the other, else only `second` for `first`."""

    first: str
    second: str
    both: bool
    unit: bool
    questions: tuple[Question, ...]


def _read(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _lines(name: str) -> Iterator[str]:
    return (line for line in _read(name).splitlines() if line and not line.startswith("#"))


@cache
def questions() -> tuple[Question, ...]:
    """The base questions."""
    return tuple(Question(*line.split(" | ", 1)) for line in _lines("questions.txt"))


@cache
def groups(name: str) -> tuple[Group, ...]:
    """The groups of a file ("groups.txt", "passive.txt") in their order."""
    found = []
    for block in _read(name).split("\n\n"):
        head, *wordings = [line for line in block.splitlines() if not line.startswith("#")] or [""]
        if wordings:
            domain, *slots = head.split("; ")
            named = (slot.split(" = ", 1) for slot in slots)
            values = {slot: tuple(choices.split(" | ")) for slot, choices in named}
            found.append(Group(domain, values, tuple(wordings)))
    return tuple(found)


@cache
def word_pairs(name: str) -> tuple[WordPair, ...]:
    """The pairs of a file: "first = second", or ">" for one direction, and perhaps a question with {}."""
    found = []
    for line in _lines(name):
        words, *rest = line.split(" | ", 2)
        first, sign, second = re.split(r" ([=>]) ", words)
        text, _, flag = rest[1].partition(" | ") if rest else ("", "", "")
        asked = (Question(rest[0], text),) if rest else ()
        found.append(WordPair(first, second, sign == "=", flag == "!", asked))
    return tuple(found)


def chosen(text: str, rng: random.Random) -> str:
    """The text with one of each "{a|b}"; the mark of a clause and "{}" stay."""
    return re.sub(r"\{([^{}]*\|[^{}]*)\}", lambda match: rng.choice(match[1].split("|")), text)


def wordings(group: Group, rng: random.Random) -> tuple[str, ...]:
    """A group's wordings with one value in each slot; what ends as a sentence begins with a capital."""
    values = {slot: rng.choice(choices) for slot, choices in group.slots.items()}
    texts = (wording.format(**values) for wording in group.wordings)
    return tuple(text[0].upper() + text[1:] if text[-1] in ".?" else text for text in texts)


def draw(rng: random.Random) -> Question:
    """Any question, ready to be asked."""
    if rng.random() < 0.6:
        question = rng.choice(questions())
        return Question(question.domain, chosen(question.text, rng).replace(FRONTABLE, " "))
    group = rng.choice(groups(rng.choice(("groups.txt", "groups.txt", "groups.txt", "passive.txt"))))
    return Question(group.domain, rng.choice(wordings(group, rng)))


@cache
def vocabulary() -> frozenset[str]:
    """Every word that the questions and groups write in small letters."""
    files = (
        "questions.txt",
        "groups.txt",
        "passive.txt",
        "spellings.txt",
        "abbreviations.txt",
        "synonyms.txt",
    )
    return frozenset(re.findall(r"\b[a-z]+\b", " ".join(map(_read, files))))


def lower_first(text: str) -> str:
    """The text with a small first letter, unless its first word may be a name."""
    word = re.match(r"[A-Z][a-z]*\b(?!')|What's|How's|Where's", text)
    small = word and word[0] != "I" and word[0].lower().removesuffix("'s") in vocabulary()
    return text[0].lower() + text[1:] if small else text


def map_unquoted(
    pattern: str | re.Pattern[str], replace: str | Callable[[re.Match[str]], str], text: str
) -> str:
    """Replaces a pattern, but in nothing that stands between quotation marks or backticks."""
    parts = re.split(r'("[^"]*"|`[^`]*`)', text)
    parts[::2] = (re.sub(pattern, replace, part) for part in parts[::2])
    return "".join(parts)
