"""Writes a question as somebody else would type it, which leaves its meaning alone."""

from __future__ import annotations

import random

from judge.disguise import surface, words

DISGUISES: tuple[surface.Change, ...] = (
    words.respell, words.abbreviate, words.replace_phrases, surface.contract, surface.mistype,
    surface.add_filler, surface.greet, surface.change_case,
)  # fmt: skip


def disguise(text: str, rng: random.Random) -> str:
    """One to three changes that leave the meaning alone.

    For either side of any pair, so that a spelling or a greeting never tells whether two questions are the
    same.
    """
    wanted = rng.choice((1, 1, 2, 2, 3))
    order = rng.sample(range(len(DISGUISES)), len(DISGUISES))
    taken: list[int] = []
    for index in order:
        if len(taken) < wanted and DISGUISES[index](text, random.Random(index)) != text:
            taken.append(index)
    for index in sorted(taken):
        text = DISGUISES[index](text, rng)
    return text
