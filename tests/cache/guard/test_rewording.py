"""The guard's last word: rewordings that no rule explains."""

import math

import pytest

from tests.cache.guard.cases import KEPT_APART
from trimodal.cache.guard.guard import Guard, compare
from trimodal.cache.guard.reading.words import NotEnglish
from trimodal.cache.guard.rewording import (
    FEATURES,
    LEAST_SIMILARITY,
    features,
    learned_with,
    may_be_reworded,
)

REWORDED = (
    ("How long does the train take from Madrid to Seville?", "train from Madrid to Seville, travel time"),
    (
        "What should I pack for a week of hiking in the Alps?",
        "packing list for one week's hiking in the Alps",
    ),
    ("when is the best time to visit iceland", "Which season is best for a trip to Iceland?"),
)


@pytest.mark.parametrize(("asked", "stored"), REWORDED)
def test_what_no_rule_explains_passes_when_it_is_near_enough(asked: str, stored: str) -> None:
    assert Guard(0).judge(asked, stored, 0.97) == "subject", "or a rule explains it, and this shows nothing"
    assert Guard(0.05).judge(asked, stored, 0.97) == ""
    assert Guard(0.05).judge(stored, asked, 0.97) == ""
    assert Guard(0.05).judge(asked, stored, LEAST_SIMILARITY - 0.01) == "subject"
    assert Guard(0.05).judge(asked, stored) == "subject", "without a similarity only rules count"


@pytest.mark.parametrize("similarity", [0.8, 0.9, 0.99])
def test_a_stricter_bound_lets_less_pass(similarity: float) -> None:
    passed = [
        sum(Guard(bound).judge(asked, stored, similarity) == "" for asked, stored in KEPT_APART)
        for bound in (0.0, 0.002, 0.01, 0.1)
    ]
    assert passed == sorted(passed)
    assert passed[0] == 0
    # Another word in the same sentence is no rewording, however near an embedding may call it.
    assert passed[2] <= 0.05 * len(KEPT_APART)


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("Which dogs shed a lot?", "I wonder: which dogs hardly shed at all?"),
        ("How do I enable the firewall?", "Tell me how the firewall gets disabled"),
        ("How long is the warranty for 2 years old laptops?", "For laptops, the warranty lasts how long?"),
        ("Who taught Aristotle?", "Whom did Aristotle teach?"),
    ],
)
def test_what_turns_a_question_around_never_passes(asked: str, stored: str) -> None:
    assert Guard(0.1).judge(asked, stored, 0.999) != ""


def test_the_features_are_the_same_both_ways_and_finite() -> None:
    seen = 0
    for asked, stored in KEPT_APART:
        try:
            one, other = compare(asked, stored), compare(stored, asked)
        except NotEnglish:
            continue
        values = features(*one.difference, (asked, stored), 0.9)
        assert len(values) == len(FEATURES)
        assert all(map(math.isfinite, values))
        if len(one.difference[2]) == len(other.difference[2]):
            assert values[:8] == pytest.approx(features(*other.difference, (stored, asked), 0.9)[:8])
            seen += 1
    assert seen > 300


def test_nothing_in_common_is_no_rewording() -> None:
    pair = compare("How do I boil eggs?", "Where is the station?")
    assert not may_be_reworded(*pair.difference[2:], 0.99)


@pytest.mark.parametrize("similarity", [math.nan, -1.0, 0.0])
def test_a_similarity_that_is_none_lets_nothing_pass(similarity: float) -> None:
    assert Guard(0.1).judge(*REWORDED[0], similarity) == "subject"


def test_for_another_embedding_model_only_rules_count() -> None:
    asked, stored = REWORDED[0]
    assert Guard(0.05, learned_with()).judge(asked, stored, 0.97) == ""
    assert Guard(0.05, "f" * 64).judge(asked, stored, 0.97) == "subject"


def test_both_ways_are_judged() -> None:
    for asked, stored in (*KEPT_APART, *REWORDED):
        for similarity in (0.85, 0.97):
            there = Guard(0.05).judge(asked, stored, similarity)
            assert (there == "") == (Guard(0.05).judge(stored, asked, similarity) == "")
