"""The makers of different pairs of which a word changed: what a kind yields, and how a frame is filled."""

from __future__ import annotations

import random
import re

import pytest

from tests.builders.scripts import Later

words = Later("steps.judge.changed_words")
frames = Later("steps.judge.changed_words.frames")

KINDS = ["number", "unit", "currency", "date", "version", "name", "place", "tool", "negation", "antonym"]
KINDS += ["roles", "person", "subject"]
of_every_kind = pytest.mark.parametrize("kind", KINDS)


def draw(kind: str, count: int, seed: int = 7) -> list[tuple[str, str, str, str]]:
    rng = random.Random(seed)
    return [tuple(words.CHANGED_WORDS[kind](rng)) for _ in range(count)]


def test_every_kind_has_a_maker() -> None:
    assert list(words.CHANGED_WORDS) == KINDS
    assert sorted(frames.frames()) == sorted(KINDS)


@of_every_kind
def test_a_kind_yields_many_pairs_of_two_questions(kind: str) -> None:
    made = draw(kind, 1500)
    assert all(a != b and of == kind for a, b, of, _ in made)
    assert len({(a, b) for a, b, _, _ in made}) >= 500
    left_over = re.compile(r"[\[\]{}|@]|\(n\)|  | [,.?!]|^ | $")
    assert [text for a, b, _, _ in made for text in (a, b) if left_over.search(text)] == []


def test_the_same_seed_makes_the_same_pairs() -> None:
    assert [draw(kind, 20) for kind in KINDS] == [draw(kind, 20) for kind in KINDS]
    assert draw("number", 20) != draw("number", 20, seed=8)


@of_every_kind
def test_a_kind_has_many_frames_in_many_domains(kind: str) -> None:
    of_kind = frames.frames()[kind]
    assert len(of_kind) == len(set(of_kind)) >= 40
    assert len({frame.domain for frame in of_kind}) >= 15


@of_every_kind
def test_every_frame_can_be_filled_and_differs(kind: str) -> None:
    rng = random.Random(7)
    for frame in frames.frames()[kind]:
        a, b = frames.fill(frame.text, rng)
        assert a.lower() != b.lower(), frame.text


def test_brackets_move_together_and_braces_stay() -> None:
    text = "Did [{city}|{city2}] beat [{city2}|{city}] {at home|away}, {city}?"
    for seed in range(20):
        a, b = frames.fill(text, random.Random(seed))
        (one, other, where, last) = re.fullmatch(r"Did (.+) beat (.+) (at home|away), (.+)\?", a).groups()  # type: ignore[union-attr]
        assert b == f"Did {other} beat {one} {where}, {last}?"
        assert one != other
        assert last in (one, other)


def test_each_side_may_be_first() -> None:
    firsts = {frames.fill("a [x|y]", random.Random(seed))[0] for seed in range(20)}
    assert firsts == {"a x", "a y"}


def test_the_difference_is_no_word_that_stands_elsewhere() -> None:
    for seed in range(200):
        a, b = frames.fill("{planet} and [@planet]", random.Random(seed))
        assert len({*a.split(" and "), *b.split(" and ")}) == 3


def test_numbers_keep_their_span_and_step() -> None:
    assert frames.words_of("2-10/4") == ("2", "6", "10")
    assert frames.words_of("1000-3000/1000,") == ("1,000", "2,000", "3,000")


def test_a_frame_whose_brackets_do_not_match_is_refused() -> None:
    with pytest.raises(ValueError, match="brackets of different lengths"):
        frames.fill("[a|b] and [c|d|e]", random.Random(0))


@pytest.mark.parametrize(
    ("word", "article"),
    [
        ("hour", "an"),
        ("euro", "a"),
        ("8 GB disk", "an"),
        ("umbrella", "an"),
        ("user", "a"),
        ("one-way trip", "a"),
    ],
)
def test_the_article_fits_its_word(word: str, article: str) -> None:
    assert frames.tidy(f"a(n) {word}") == f"{article} {word}"
