"""The sizes that decoders with static shapes are built for."""

from __future__ import annotations

from trimodal.speech.engines.graphs.rows import bucket_sizes, longest_opening, most_lines


def test_sizes_are_powers_of_two_and_the_largest():
    assert [bucket_sizes(size) for size in (1, 2, 8, 12)] == [(1,), (1, 2), (1, 2, 4, 8), (1, 2, 4, 8, 12)]
    assert bucket_sizes(16) == (1, 2, 4, 8, 16)


def test_half_of_the_places_are_for_what_was_said_before_and_half_for_the_text():
    assert longest_opening(448) == 224 + 4
    assert most_lines(448) == 4 + 224, "the last token is given to nobody"
