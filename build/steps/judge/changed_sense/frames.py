"""Draws pairs of near-identical questions with another right answer from hand-written frames.

A frame is a line of `kinds/KIND.txt`: "domain | question". In the question

- `{enable|disable}` is what changes: two of the alternatives are drawn, one for each side. Where a frame has
  several, they have equally many alternatives, and a side takes the same one of each.
- `<city>` is a list of `lists.txt`, filled alike on both sides; `<city2>` is another item of it, and
  `<red/blue>` a list in place.
- `[Can I/Could I]` means the same either way: each side may say it otherwise.
- `a(n)` is "a" or "an", as the next word wants.
"""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from steps.judge.made import Made

FOLDER = Path(__file__).parent
CHANGED = re.compile(r"\{([^{}]*)\}")
ALIKE = re.compile(r"<([^<>]+)>")
WORDING = re.compile(r"\[([^\[\]]*)\]")
ARTICLE = re.compile(r"\b([Aa])\(n\)(?= +(\w+))")
# Vowels to the eye, not to the ear; and the other way round.
CONSONANT = re.compile(r"(?:uni(?![nm])|use|usu|eu|once?\b|uku|u\d|uk\b|us\b|usb)", re.IGNORECASE)
VOWEL = re.compile(r"(?:[aeiou]|hour|honest|heir|8|11\b|18\b|mp3|xml|html|x-?ray|mri)", re.IGNORECASE)
# How often the sides of a pair are worded alike, and how often a side is typed without capitals and its end.
SAME_WORDING = 2 / 3
BOTH_CASUAL, ONE_CASUAL = 0.12, 0.12
# How often a sentence that changes nothing stands before or behind the question, a side at a time.
ASIDE = 0.12


class Frame(NamedTuple):
    """A line of a file of frames."""

    domain: str
    text: str


@cache
def read_frames(kind: str) -> tuple[Frame, ...]:
    """The frames of a kind, in the order of its file; # begins a line of comment."""
    lines = (FOLDER / "kinds" / f"{kind}.txt").read_text(encoding="utf-8").splitlines()
    parts = (line.partition(" | ") for line in lines if line and not line.startswith("#"))
    return tuple(Frame(domain, text) for domain, _, text in parts)


@cache
def read_lists() -> dict[str, tuple[str, ...]]:
    """The lists that frames name: name → its items."""
    lines = (FOLDER / "lists.txt").read_text(encoding="utf-8").splitlines()
    parts = (line.partition(": ") for line in lines if line and not line.startswith("#"))
    return {name: tuple(items.split(", ")) for name, _, items in parts}


def make_pair(kind: str, rng: random.Random) -> Made:
    """Draws a frame of the kind and fills it: the same generator state, the same pair."""
    frame = rng.choice(read_frames(kind))
    a, b = add_asides(*fill(frame.text, rng), rng)
    return Made(a, b, kind, frame.domain)


def add_asides(a: str, b: str, rng: random.Random) -> tuple[str, str]:
    """Both sides, now and then with the same sentence that changes nothing on one of them or on both."""
    for name in ("before", "behind"):
        if rng.random() < ASIDE:
            aside = rng.choice(read_lists()[name])
            on_a, on_b = rng.choice(((True, True), (True, False), (False, True)))
            a, b = (join(side, aside, name) if on else side for side, on in ((a, on_a), (b, on_b)))
    return a, b


def join(question: str, aside: str, place: str) -> str:
    """The question with an aside; a question without its own end gets none."""
    if not question.endswith(("?", ".", "!")):
        return question
    return f"{aside} {question}" if place == "before" else f"{question} {aside}"


def fill(text: str, rng: random.Random) -> tuple[str, str]:
    """Both sides of a frame's question. Raises ValueError for a frame in which nothing changes."""
    text = fill_alike(text, rng)
    changed = CHANGED.search(text)
    if changed is None:
        raise ValueError(f"nothing changes in '{text}'")
    first, second = rng.sample(range(len(changed[1].split("|"))), 2)
    seed = rng.random()
    other_seed = seed if rng.random() < SAME_WORDING else rng.random()
    casual = rng.random()
    a = finish(take(text, first), seed, casual < BOTH_CASUAL + ONE_CASUAL / 2)
    b = finish(take(text, second), other_seed, casual < BOTH_CASUAL or casual > 1 - ONE_CASUAL / 2)
    return a, b


def fill_alike(text: str, rng: random.Random) -> str:
    """The text with its lists filled, each name with one item."""
    filled: dict[str, str] = {}
    for name in ALIKE.findall(text):
        if name not in filled:
            items = name.split("/") if "/" in name else read_lists()[name.rstrip("0123456789")]
            filled[name] = rng.choice([item for item in items if item not in filled.values()])
    return ALIKE.sub(lambda found: filled[found[1]], text)


def take(text: str, index: int) -> str:
    """The text with one alternative of each part that changes."""
    return CHANGED.sub(lambda found: found[1].split("|")[index], text)


def finish(text: str, seed: float, casual: bool) -> str:
    """The text with its wordings drawn by the seed, articles, spaces and the capital of a sentence."""
    rng = random.Random(seed)
    text = WORDING.sub(lambda found: rng.choice(found[1].split("/")), text)
    text = " ".join(text.split())
    text = re.sub(r" (?=[,.?!;:])", "", text)
    text = ARTICLE.sub(lambda found: found[1] + ("n" if says_vowel(found[2]) else ""), text)
    if text.endswith(("?", ".", "!")):
        text = text[0].upper() + text[1:]
        if casual:
            text = text[:-1].lower()
    return text


def says_vowel(word: str) -> bool:
    """Whether the word is spoken with a vowel first, as "an" wants it."""
    return bool(VOWEL.match(word)) and not CONSONANT.match(word)
