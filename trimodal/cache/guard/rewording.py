"""Accepts a rewording that no rule explains, when how two questions differ is how rewordings differ.

Asked last, when the rules have found nothing against a pair but words left over: a logistic model of the
questions' likeness and of the shape of their difference. One word exchanged in the same sentence is what
another question looks like; a new sentence around the same words is a rewording. build/cache_guard.py makes
its weights.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trimodal.cache.guard.lexicon.word_lists import word_set
from trimodal.cache.guard.reading.terms import Reading, Term

MODEL = Path(__file__).with_name("rewording.json")
LEAST_SIMILARITY = 0.75
"""Below it two questions are not near enough to be the same in other words."""
FEATURES = (
    "similarity", "left_over", "left_over_on_both", "edits", "replacements", "kept", "one_edit", "overlap",
    "shared", "share", "longer", "in_order", "in_order_far",
)  # fmt: skip
# Words that turn a question around or narrow it: if one is left over, no likeness counts.
_TURNS = word_set(
    """hardly barely scarcely rarely seldom never always lack miss absent except besides only anything
    nothing nobody else other another same different opposite equal before after until since first last
    next previous early late earliest latest every all most least more less few many half double twice
    start stop begin end enable disable open close increase decrease rise fall gain lose buy sell rent
    lend borrow give take send receive push pop pull attach detach import export upload download cause
    cure relieve treat prevent avoid allow forbid permit deny include exclude add remove delete restore
    accept reject raise lower win push male female man woman boy girl left right north south east west
    up down in out on off inside outside temporarily permanently manual automatic partial whole multiply
    divide only above below over under hot cold warm cool big small large long short high low old new
    young fast slow cheap expensive public private legal illegal safe dangerous raw cooked wet dry full
    empty"""
)
_WORD = re.compile(r"[^\W_]+(?:'\w+)?")


def reworded(
    ours: Reading,
    theirs: Reading,
    found: Mapping[int, int],
    left: Sequence[Term],
    missing: Sequence[Term],
    texts: tuple[str, str],
    similarity: float,
    max_false_hit: float,
) -> bool:
    """Whether what is `left` of ours and `missing` from it is a matter of wording alone.

    Args:
        found: index of a term of `ours` → index of the term of `theirs` that says the same.
        texts: both questions as they were asked.
        similarity: cosine of their embeddings.
        max_false_hit: bound of wrong ones among all that differ, with 95 % confidence; 0: nothing passes.
    """
    if not may_be_reworded(found, left, missing, similarity):
        return False
    model = _model()
    values = features(ours, theirs, found, left, missing, texts, similarity)
    score = model.bias + sum(weight * value for weight, value in zip(model.weights, values, strict=True))
    return score > model.threshold(max_false_hit)


def may_be_reworded(
    found: Mapping[int, int], left: Sequence[Term], missing: Sequence[Term], similarity: float
) -> bool:
    """Whether to ask the model: the questions are similar, and nothing left over turns them around."""
    if not found or similarity < LEAST_SIMILARITY:
        return False
    over = (*left, *missing)
    return all(term.kind == "word" and _TURNS.isdisjoint({term.text, *term.keys}) for term in over)


def features(
    ours: Reading,
    theirs: Reading,
    found: Mapping[int, int],
    left: Sequence[Term],
    missing: Sequence[Term],
    texts: tuple[str, str],
    similarity: float,
) -> tuple[float, ...]:
    """Returns the values of FEATURES. All but the last are the same whichever question comes first."""
    one, other = (_WORD.findall(text.lower()) for text in texts)
    # difflib's blocks depend on the order of its two sequences.
    matchers = (difflib.SequenceMatcher(None, *pair, autojunk=False) for pair in ((one, other), (other, one)))
    edits = [step for matcher in matchers for step in matcher.get_opcodes()]
    changed = [step for step in edits if step[0] != "equal"]
    kept = sum(end - start for kind, start, end, _, _ in edits if kind == "equal") / 2
    small = [
        kind == "replace" and end - start <= 2 and to - since <= 2 for kind, start, end, since, to in changed
    ]
    places = [found[index] for index in sorted(found)]
    turned = sum(a > b for a, b in zip(places, places[1:], strict=False))
    longest = max(len(one), len(other), 1)
    return (
        similarity,
        float(len(left) + len(missing)),
        float(min(len(left), len(missing))),
        len(changed) / 2,
        sum(step[0] == "replace" for step in changed) / 2,
        kept / longest,
        float(len(changed) == 2 and all(small)),
        len({*one} & {*other}) / max(1, len({*one} | {*other})),
        float(len(found)),
        len(found) / max(1, len(ours.terms), len(theirs.terms)),
        float(abs(len(one) - len(other))),
        float(not turned),
        turned / max(1, len(places)),
    )


def learned_with() -> str:
    """SHA-256 of the embedding model's checkpoint whose similarities the weights fit."""
    return _model().checkpoint


@dataclass(frozen=True)
class _Model:
    checkpoint: str
    weights: tuple[float, ...]
    bias: float
    curve: tuple[tuple[float, float], ...]

    def threshold(self, max_false_hit: float) -> float:
        """Returns the lowest score whose bound on wrong answers holds; inf when none does."""
        return min((score for bound, score in self.curve if bound <= max_false_hit), default=math.inf)


@cache
def _model() -> _Model:
    values = json.loads(MODEL.read_text(encoding="utf-8"))
    if tuple(values["features"]) != FEATURES:
        raise ValueError(f"{MODEL.name} is for other features: run build/cache_guard.py again")
    curve = tuple((float(bound), float(score)) for bound, score in values["curve"])
    return _Model(
        str(values["checkpoint"]), tuple(map(float, values["weights"])), float(values["bias"]), curve
    )
