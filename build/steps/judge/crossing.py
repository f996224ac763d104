"""Makes pairs that differ from near questions of different pairs, as a cache's nearest entry is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
from steps.judge.example import Example, normalised

CROSSED = "crossed"
LEAST, MOST = 0.4, 0.62  # cosine: of nearer ones every tenth had the same answer
TEXTS = 4  # that are embedded, for each pair that is wanted
MOST_TEXTS = 4000
NEAREST = 5
Embed = Callable[[Sequence[str]], npt.NDArray[np.float32]]
"""Unit vectors [N, d] of N texts."""


class Groups:
    """Questions that one answer serves, as far as pairs tell: what is the same as the same is the same."""

    def __init__(self, examples: Iterable[Example]) -> None:
        self._parents: dict[str, str] = {}
        for example in examples:
            one, other = self.of(example.a), self.of(example.b)
            if example.same:
                self._parents[one] = other

    def of(self, text: str) -> str:
        """One text that stands for the group."""
        key = normalised(text)
        path = [key]
        while (parent := self._parents.setdefault(path[-1], path[-1])) != path[-1]:
            path.append(parent)
        for passed in path:
            self._parents[passed] = path[-1]
        return path[-1]


def cross(examples: Sequence[Example], most: int, embed: Embed, rng: random.Random) -> list[Example]:
    """Up to `most` pairs, each of questions from different groups that are near one another."""
    groups = Groups(examples)
    domains = {text: example.domain for example in examples for text in example[:2]}
    texts = sorted(domains)
    rng.shuffle(texts)
    texts = texts[: min(MOST_TEXTS, TEXTS * most)]
    if len(texts) < 2:
        return []
    vectors = embed(texts)
    found: list[Example] = []
    seen = {frozenset((normalised(example.a), normalised(example.b))) for example in examples}
    for row, text in enumerate(texts):
        if len(found) >= most:
            break
        cosines = vectors @ vectors[row]
        near = [at for at in np.argsort(-cosines)[: 4 * NEAREST] if LEAST <= cosines[at] <= MOST]
        others = [texts[at] for at in near if groups.of(texts[at]) != groups.of(text)][:NEAREST]
        if not others:
            continue
        other = rng.choice(others)
        key = frozenset((normalised(text), normalised(other)))
        if len(key) == 2 and key not in seen:
            seen.add(key)
            found.append(Example(text, other, False, CROSSED, domains[text]))
    return found
