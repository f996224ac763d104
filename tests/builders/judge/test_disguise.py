"""build/judge/disguise: the same question as somebody else would type it."""

from __future__ import annotations

import random
import re
from functools import cache

import pytest

from tests.builders.scripts import Later

disguises, words, surface, sources = (
    Later(f"judge.{name}") for name in ("disguise.disguise", "disguise.words", "disguise.surface", "sources")
)
NEGATIONS = (
    r"n['’]t\b|\b(?:not|no|never|without|none|nothing|nobody|neither|cannot)\b"
    r"|\b(?:do|does|did|is|are|was|ca|has)nt\b"
)


@cache
def written() -> list[str]:
    """One side of each pair that the project wrote."""
    return [pair.a for pair in sources.written_pairs(5)]


def numbers(text: str) -> list[str]:
    return sorted(re.findall(r"(?<![A-Za-z])\d+(?:[.,/]\d+)*", text))


def negations(text: str) -> int:
    return len(re.findall(NEGATIONS, text.lower()))


def test_a_disguise_keeps_numbers_and_what_is_quoted() -> None:
    rng = random.Random(3)
    for text in rng.sample(written(), 800):
        disguised = disguises.disguise(text, rng)
        assert numbers(disguised) == numbers(text), disguised
        quoted = re.findall(r'"[^"]*"', text)
        assert all(each in disguised for each in quoted), disguised


@pytest.mark.parametrize(
    ("module", "change"), [(words, "respell"), (surface, "contract"), (surface, "mistype")]
)
def test_a_negation_stays(module: Later, change: str) -> None:
    rng = random.Random(3)
    texts = rng.sample(written(), 3000)
    changed = [(text, other) for text in texts if (other := getattr(module, change)(text, rng)) != text]
    assert len(changed) > 50
    lost = [each for each in changed if negations(each[0]) != negations(each[1])]
    assert not lost, lost[:5]


def test_a_disguise_leaves_names_and_codes_alone() -> None:
    text = "Why does my iPhone 15 show 20 of 35 for LH 452 and vitamin C?"
    for seed in range(60):
        disguised = " ".join(disguises.disguise(text, random.Random(seed)).split())
        lost = [word for word in ("iphone 15", "20", "35", "lh 452") if word not in disguised.lower()]
        assert not lost, disguised
        assert re.search(r" [Cc]\b", disguised), disguised
