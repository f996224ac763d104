"""Compares two answers: whether one could have been given for the other.

Equal ones agree. Else there are three views, each for, against or neither: the words that both have (F1), the
cosine of their embeddings, and the judge's P(same) of the two answers. Two for and none against: agreed. Two
against and none for: disagreed. All else is unclear, and so is an answer that was cut by its max_tokens. A
view whose model does not answer has no vote. The limits of the views are chosen, not calibrated.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from trimodal.cache.values import Embed, Same
from trimodal.judge.normaliser import compatible

logger = logging.getLogger(__name__)

MAX_CHARACTERS = 2_000
"""Beginning of an answer that the models see."""
OVERLAP = (0.4, 0.8)
COSINE = (0.6, 0.9)
SAME = (0.1, 0.8)
"""Up to the first a view is against, from the second on for."""
_WORDS = re.compile(
    r"(?:(?<!\w)-)?\d+(?:[.,]\d+)*|\w+(?:[#+]+(?!\w))?|(?<=\w)[*#](?=\w)|[^\w\s.,;:!?'\"()*#`-]"
)

Agreement = Literal["agreed", "disagreed", "unclear"]
"""Whether a stored answer and a fresh one could stand for each other."""


def compare(stored: str, fresh: str, embed: Embed | None, same: Same | None) -> Agreement:
    """Whether two whole answers agree. The models are only asked where the words do not tell."""
    one, other = words(stored), words(fresh)
    if one == other:
        return "agreed"
    votes = [_vote(overlap(one, other), OVERLAP)]
    stored, fresh = stored[:MAX_CHARACTERS], fresh[:MAX_CHARACTERS]
    if embed:
        votes.append(_vote(_of_model(lambda: float(np.dot(embed(stored), embed(fresh)))), COSINE))
    if same:
        # It gives 0 to what is too long for it to read, and to nothing else.
        votes.append(_vote(_of_model(lambda: same([(stored, fresh)])[0] or None), SAME))
    if votes.count(1) >= 2 and -1 not in votes:
        return "agreed"
    return "disagreed" if votes.count(-1) >= 2 and 1 not in votes else "unclear"


def words(text: str) -> list[str]:
    """The words and numbers of a text in compatible characters, without case and punctuation.

    A sign that changes what it stands at stays: -5, C#, C++, a*b, 10².
    """
    return _WORDS.findall(compatible(text).casefold())


def overlap(one: Sequence[str], other: Sequence[str]) -> float:
    """F1 of the words of two texts, 0 to 1; 0 when a number stands in one of them alone."""
    first, second = Counter(one), Counter(other)
    if {word for word in first if word[0].isdigit()} != {word for word in second if word[0].isdigit()}:
        return 0.0
    return 2 * (first & second).total() / max(1, len(one) + len(other))


def _vote(value: float | None, limits: tuple[float, float]) -> int:
    """1: for, -1: against, 0: neither."""
    if value is None or not np.isfinite(value):
        return 0
    against, favour = limits
    return -1 if value <= against else int(value >= favour)


def _of_model(ask: Callable[[], float | None]) -> float | None:
    try:
        return ask()
    except Exception as error:
        logger.debug("a view of two answers is missing: %s", error)
        return None
