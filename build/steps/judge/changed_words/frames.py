"""Reads frames, questions with slots, and fills one into two questions that differ in its brackets.

A frame is a line `domain | text` below its kind's heading `# kind`. In the text stand

    {list}       a word of that list in lists.txt, the same on both sides, wherever it stands
    {list2}      another word of the list
    {some|any}   one of these, the same on both sides
    {2-90/5}     a number from 2 to 90 in steps of 5 (1 if not said); {1000-9000,} writes 1,000
    [new|used]   the difference: another one on each side
    [@list]      the difference, out of a list; [2-90/5] out of numbers

All brackets of a frame move together: `Does [a cat|a dog] chase [a dog|a cat]?` swaps the two. A brace may
stand in a bracket. `a(n)` becomes what the next word needs.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
LISTS = "lists.txt"
NUMBERS = re.compile(r"(\d+)-(\d+)(?:/(\d+))?(,?)")
ARTICLE = re.compile(r"\b([Aa])\(n\) (?=(\W*\w+))")
VOWEL = re.compile(r"[aeio]|u(?!ni|se|k\b|s\b|t)|hour|honest|8|11\b|18\b", re.IGNORECASE)
CONSONANT = re.compile(r"one\b|once|eu", re.IGNORECASE)


class Frame(NamedTuple):
    """A question with slots, and what it is about."""

    domain: str
    text: str


@cache
def frames() -> Mapping[str, tuple[Frame, ...]]:
    """The frames of every kind, from all text files of the folder but the lists."""
    found: dict[str, list[Frame]] = {}
    for file in sorted(HERE.glob("*.txt")):
        if file.name == LISTS:
            continue
        kind = ""
        for line in filter(None, file.read_text(encoding="utf-8").splitlines()):
            if line.startswith("# "):
                kind = line[2:]
                continue
            domain, text = line.split(" | ", 1)
            found.setdefault(kind, []).append(Frame(domain, text))
    return {kind: tuple(of_kind) for kind, of_kind in found.items()}


@cache
def lists() -> Mapping[str, tuple[str, ...]]:
    """The named lists: `name: word | word`, one a line."""
    lines = filter(None, (HERE / LISTS).read_text(encoding="utf-8").splitlines())
    named = (line.split(": ", 1) for line in lines)
    return {name: tuple(words.split(" | ")) for name, words in named}


def fill(text: str, rng: random.Random) -> tuple[str, str]:
    """Fills a frame's slots: two questions that differ in the brackets and nowhere else."""
    taken: dict[str, str] = {}

    def fill_brace(slot: re.Match[str]) -> str:
        body: str = slot[1]
        if "|" in body:
            return rng.choice(body.split("|"))
        if body not in taken:
            taken[body] = rng.choice([word for word in words_of(body) if word not in taken.values()])
        return taken[body]

    while "{" in text:  # the innermost first
        text = re.sub(r"\{([^{}]+)\}", fill_brace, text)
    bodies = re.findall(r"\[([^\[\]]+)\]", text)
    written = {body: body.split("|") for body in bodies if "|" in body}
    counts = {len(words) for words in written.values()} or {2}
    if len(counts) != 1:
        raise ValueError(f"brackets of different lengths: {text}")
    count = counts.pop()
    for body in bodies:
        if body not in written:
            free = [word for word in words_of(body.removeprefix("@")) if word not in taken.values()]
            written[body] = rng.sample(free, count)
    one, other = (
        re.sub(r"\[([^\[\]]+)\]", lambda slot, at=at: written[slot[1]][at], text)  # type: ignore[misc]
        for at in rng.sample(range(count), 2)
    )
    return tidy(one), tidy(other)


def words_of(body: str) -> tuple[str, ...]:
    """The words that a slot `list`, `list2` or `2-90/5` can take."""
    if span := NUMBERS.fullmatch(body):
        low, high, step, comma = span.groups()
        numbers = range(int(low), int(high) + 1, int(step or 1))
        return tuple(f"{number:,}" if comma else str(number) for number in numbers)
    return lists()[body.rstrip("0123456789")]


def tidy(text: str) -> str:
    """Writes the articles, and no space too many where a slot was empty."""
    text = ARTICLE.sub(lambda found: f"{found[1]}n " if takes_an(found[2]) else f"{found[1]} ", text)
    return re.sub(r" (?=[ ,.?!])", "", text).strip()


def takes_an(word: str) -> bool:
    word = word.strip("\"'(")
    return bool(VOWEL.match(word)) and not CONSONANT.match(word)
