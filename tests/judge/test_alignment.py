"""Token types: aligned, moved and lacking tokens of both sides."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from trimodal.judge.alignment import ALIGNED, LACKING, MOVED, TYPES, token_types

CLS, SEP, PAD = -1, -2, -3


@dataclass
class Pair:
    """As a tokenizer encodes two texts: [CLS] one [SEP] other [SEP], with padding."""

    one: str
    other: str

    @property
    def sequence_ids(self) -> list[int | None]:
        one, other = len(self.one.split()), len(self.other.split())
        return [None, *[0] * one, None, *[1] * other, None, None]

    @property
    def ids(self) -> list[int]:
        one, other = ([hash(word) for word in text.split()] for text in (self.one, self.other))
        return [CLS, *one, SEP, *other, SEP, PAD]

    @property
    def type_ids(self) -> list[int]:
        return [0] * (len(self.one.split()) + 2) + [1] * (len(self.other.split()) + 1) + [0]


def states(one: str, other: str) -> tuple[list[int], list[int]]:
    types = token_types(Pair(one, other))
    length = len(one.split())
    first, second = types[1 : length + 1], types[length + 2 : -2]
    assert (types[0], types[length + 1], types[-2], types[-1]) == (0, 0, 1, 0), "no text: its side alone"
    assert [each % 2 for each in first] == [0] * len(first)
    assert [each % 2 for each in second] == [1] * len(second)
    return [each // 2 for each in first], [each // 2 for each in second]


A, M, L = ALIGNED, MOVED, LACKING


@pytest.mark.parametrize(
    ("one", "other", "first", "second"),
    [
        ("how old is rome", "how old is lima", [A, A, A, L], [A, A, A, L]),
        ("does the yen or the dollar fall", "does the dollar or the yen fall", [A, A, M, A, A, M, A], None),
        ("a b c", "a b c", [A, A, A], [A, A, A]),
        ("a b", "c d e", [L, L], [L, L, L]),
    ],
)
def test_a_token_is_aligned_moved_or_lacking(one, other, first, second):
    assert states(one, other) == (first, second or first)


def test_a_word_that_one_side_has_more_often() -> None:
    first, second = states("not for me", "not not for me")
    assert first == [ALIGNED] * 3
    assert sorted(second) == [ALIGNED, ALIGNED, ALIGNED, MOVED]


def test_every_type_has_a_vector() -> None:
    assert {side + 2 * state for side in (0, 1) for state in (ALIGNED, MOVED, LACKING)} == set(range(TYPES))
