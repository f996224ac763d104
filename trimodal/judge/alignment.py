"""Tells the model of each token whether the other question has it there, elsewhere, or not at all.

Two near questions differ in a word or two. A cross-encoder has to find these first, and learns that slowly;
by its token types it is told where to look. What no token tells apart it cannot find.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def differ_untold(pair: Any, texts: Sequence[str]) -> bool:
    """Whether the two `texts` of a `tokenizers.Encoding` write a word differently that has the same tokens.

    What a vocabulary lacks (most emoji, signs of mathematics) is [UNK], whatever it is; BERT's normaliser
    drops accents, and characters without a width.
    """
    one, other = (_written(pair, side, text) for side, text in enumerate(texts))
    return any(one[ids] != other[ids] for ids in one.keys() & other.keys())


def _written(pair: Any, side: int, text: str) -> dict[tuple[int, ...], list[str]]:
    """Ids of a word → how it is written, each way once; no ids: what is in no token."""
    ids, offsets = pair.ids, pair.offsets  # each access makes a list of all
    words: dict[int, list[int]] = {}
    for place, (of_side, word) in enumerate(zip(pair.sequence_ids, pair.word_ids, strict=True)):
        if of_side == side:
            words.setdefault(word, []).append(place)
    found: dict[tuple[int, ...], list[str]] = {}
    between, end = [], 0
    for places in words.values():
        start, stop = offsets[places[0]][0], offsets[places[-1]][1]
        between.append(text[end:start])
        end = stop
        ways = found.setdefault(tuple(ids[place] for place in places), [])
        if (written := text[start:stop].strip()) not in ways:
            ways.append(written)
    found[()] = "".join([*between, text[end:]]).split()
    return found
