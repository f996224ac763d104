"""Tells the model of each token whether the other question has it there, elsewhere, or not at all.

Two near questions differ in a word or two. A cross-encoder has to find these first, and learns that slowly;
by its token types it is told where to look.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import Any

TYPES = 6
"""Values of a token type: the side (0 or 1) + 2 × ALIGNED, MOVED or LACKING."""
ALIGNED, MOVED, LACKING = range(3)


def token_types(pair: Any) -> list[int]:
    """A type for each token of a `tokenizers.Encoding` of two texts; [SEP] and padding keep their side."""
    places: tuple[list[int], list[int]] = ([], [])
    for place, side in enumerate(pair.sequence_ids):
        if side is not None:
            places[side].append(place)
    ids = pair.ids
    texts = [[ids[place] for place in of_side] for of_side in places]
    aligned: tuple[set[int], set[int]] = (set(), set())
    one, another = texts
    for start, other, length in SequenceMatcher(None, one, another, autojunk=False).get_matching_blocks():
        aligned[0].update(range(start, start + length))
        aligned[1].update(range(other, other + length))
    found = list(pair.type_ids)
    for side, of_side in enumerate(places):
        others = set(texts[1 - side])
        for at, place in enumerate(of_side):
            if at not in aligned[side]:
                found[place] += 2 * (MOVED if ids[place] in others else LACKING)
    return found
