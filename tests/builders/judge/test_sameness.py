"""steps/judge/sameness: pairs that mean the same, by kind, and questions in disguise."""

from __future__ import annotations

import importlib
import random
import re
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.builders.scripts import importable

KINDS = (
    "case", "contraction", "spelling", "politeness", "fronting", "passive", "synonym", "light", "heavy",
    "typo", "filler", "command", "abbreviation",
)  # fmt: skip
NEGATIONS = (
    r"n['’]t\b|\b(?:not|no|never|without|none|nothing|nobody|neither|cannot)\b"
    r"|\b(?:do|does|did|is|are|was|ca|has)nt\b"
)


@pytest.fixture(scope="module")
def sameness() -> Iterator[ModuleType]:
    with importable():
        yield importlib.import_module("steps.judge.sameness")


@pytest.fixture(scope="module")
def texts(sameness: ModuleType) -> ModuleType:
    return importlib.import_module("steps.judge.sameness.texts")


def numbers(text: str) -> list[str]:
    return sorted(re.findall(r"\d+(?:[.,/]\d+)*", text))


def negations(text: str) -> int:
    return len(re.findall(NEGATIONS, text.lower()))


def test_every_kind_has_its_maker(sameness: ModuleType) -> None:
    assert sorted(sameness.SAMENESS) == sorted(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_pairs(sameness: ModuleType, kind: str) -> None:
    """The same seed makes the same pairs; sides differ, slots are filled, and few pairs come twice."""
    make = sameness.SAMENESS[kind]
    first, second = random.Random(7), random.Random(7)
    pairs = [make(first) for _ in range(200)]
    assert pairs[:50] == [make(second) for _ in range(50)]
    assert {pair.kind for pair in pairs} == {kind}
    assert len({pair.domain for pair in pairs}) >= 20
    assert all(pair.a != pair.b for pair in pairs)
    assert not [pair for pair in pairs if re.search(r"[{}|]| // ", pair.a + pair.b)]
    assert len({(pair.a, pair.b) for pair in pairs}) >= 150
    # Words of one wording may be digits in another, but nothing that is in both digits may differ.
    if kind not in ("abbreviation", "light", "heavy", "command"):
        assert all(numbers(pair.a) == numbers(pair.b) for pair in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_distinct_pairs(sameness: ModuleType, kind: str) -> None:
    rng = random.Random(11)
    pairs = {sameness.SAMENESS[kind](rng) for _ in range(9000)}
    assert len(pairs) >= (1000 if kind == "passive" else 2000)


def test_a_disguise_keeps_numbers_and_negations(sameness: ModuleType, texts: ModuleType) -> None:
    rng = random.Random(3)
    for question in texts.questions():
        text = texts.chosen(question.text, rng).replace(texts.FRONTABLE, " ")
        disguised = sameness.disguise(text, rng)
        assert disguised != text
        assert numbers(disguised) == numbers(text), disguised
        assert negations(disguised) == negations(text), disguised
        quoted = re.findall(r'"[^"]*"', text)
        assert all(words in disguised for words in quoted), disguised


def test_a_disguise_leaves_units_and_codes_alone(sameness: ModuleType) -> None:
    text = "Why does my iPhone 15 show 20 MB instead of 35 kilometres for LH 452 and vitamin C?"
    for seed in range(60):
        disguised = " ".join(sameness.disguise(text, random.Random(seed)).split())
        lost = [word for word in ("iPhone 15", "20 MB", "35", "LH 452") if word not in disguised]
        assert not lost, disguised
        assert "kilometres" in disguised.lower(), disguised
        assert re.search(r" C\b", disguised), disguised


def test_questions_are_many_and_varied(texts: ModuleType) -> None:
    questions, groups = texts.questions(), texts.groups("groups.txt") + texts.groups("passive.txt")
    assert len(questions) >= 600
    assert len(groups) >= 500
    assert len({question.domain for question in questions}) >= 40
    assert len({group.domain for group in groups}) >= 40
    assert all(len(set(group.wordings)) == len(group.wordings) >= 2 for group in groups)
