"""Makes near-identical questions with another right answer: a word stands for a word of its own sort."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial

from steps.judge.changed_words.frames import fill, frames
from steps.judge.made import Made, Maker

KINDS = (
    "number",
    "unit",
    "currency",
    "date",
    "version",
    "name",
    "place",
    "tool",
    "negation",
    "antonym",
    "roles",
    "person",
    "subject",
)


def make(kind: str, rng: random.Random) -> Made:
    """Draws a frame of the kind and fills it."""
    frame = rng.choice(frames()[kind])
    return Made(*fill(frame.text, rng), kind, frame.domain)


CHANGED_WORDS: Mapping[str, Maker] = {kind: partial(make, kind) for kind in KINDS}
