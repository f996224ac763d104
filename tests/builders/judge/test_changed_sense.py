"""steps/judge/changed_sense: frames that fill without a rest, and pairs that differ, many and by seed."""

from __future__ import annotations

import random
import re

import pytest

from tests.builders.scripts import importable

with importable():
    from steps.judge.changed_sense import CHANGED_SENSE
    from steps.judge.changed_sense import frames as frames_module
    from steps.judge.made import Made

DRAWS = 1500
MARKS = re.compile(r"[{}<>|\[\]]|\(n\)|\s{2}| [,.?!;:]")


def drawn(kind: str, seed: int = 7, draws: int = DRAWS) -> list[Made]:
    rng = random.Random(seed)
    return [CHANGED_SENSE[kind](rng) for _ in range(draws)]


@pytest.mark.parametrize("kind", CHANGED_SENSE)
def test_a_kind_gives_many_pairs_that_differ_and_hold_no_mark_of_a_frame(kind: str) -> None:
    pairs = drawn(kind)
    assert len({(pair.a, pair.b) for pair in pairs}) >= 500
    for pair in pairs:
        assert pair.kind == kind
        assert pair.a.rstrip("?.!").lower() != pair.b.rstrip("?.!").lower(), pair
        assert not MARKS.search(pair.a + "\n" + pair.b), pair


@pytest.mark.parametrize("kind", CHANGED_SENSE)
def test_the_same_seed_gives_the_same_pairs_and_another_one_others(kind: str) -> None:
    assert drawn(kind, 3, 30) == drawn(kind, 3, 30)
    assert drawn(kind, 3, 30) != drawn(kind, 4, 30)


@pytest.mark.parametrize("kind", CHANGED_SENSE)
def test_frames_are_many_of_many_domains_and_each_of_them_fills(kind: str) -> None:
    frames = frames_module.read_frames(kind)
    assert len(set(frames)) == len(frames) >= 120
    assert len({frame.domain for frame in frames}) >= 30
    assert all(re.fullmatch(r"[a-z]+", frame.domain) for frame in frames)
    rng = random.Random(1)
    for frame in frames:
        first, second = frames_module.fill(frame.text, rng)
        assert first != second
        # Parts that change together have equally many alternatives.
        changed = [part.count("|") for part in re.findall(r"\{([^{}]*)\}", frame.text)]
        assert len(set(changed)) == 1, frame
        assert changed[0] >= 1, frame


def test_lists_are_filled_alike_and_a_numbered_one_with_another_item() -> None:
    rng = random.Random(2)
    for _ in range(50):
        a, b = frames_module.fill("from <city> by <sea/air> to {<city2>|<city3>}", rng)
        assert a.rpartition(" to ")[0] == b.rpartition(" to ")[0]
        assert len({a.split(" by ")[0][5:], a.rpartition(" to ")[2], b.rpartition(" to ")[2]}) == 3


def test_an_article_is_the_next_words() -> None:
    for word, article in (
        ("hour", "an"), ("unused tent", "an"), ("university", "a"), ("uninsured car", "an"),
        ("European", "a"), ("iPhone", "an"), ("tent", "a"), ("SQL Server", "a"), ("used car", "a"),
    ):  # fmt: skip
        assert frames_module.finish(f"find a(n) {word}", 0.0, False) == f"find {article} {word}"


def test_a_frame_in_which_nothing_changes_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing changes"):
        frames_module.fill("Where is <city>?", random.Random(0))


def test_either_side_may_come_first() -> None:
    """Or the judge could learn on which side the cause stands, and on which the effect."""
    pairs = drawn("cause")
    assert {pair.a for pair in pairs} & {pair.b for pair in pairs}
