"""Mixes the pairs that the judge learns from and those that it is measured on, the same by seed.

Pairs come from the makers (a number of each kind), from files, from public sets, and from near questions of
different pairs (`crossing.py`). A disguise is put on sides of both labels, so that none of its traits tells
the label. Whole domains are held out, with every pair that has a text of theirs.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from steps.judge.crossing import CROSSED, Embed, cross
from steps.judge.example import Example, normalised
from steps.judge.made import Maker

from trimodal.bench.cache.pairs import HARD, SAME, read_pairs
from trimodal.errors import ArtefactError

Disguise = Callable[[str, random.Random], str]
KINDS = (*HARD, "unrelated", *SAME)
MOST_DRAWS = 6  # for each pair that is wanted: a maker may not have that many
SAME_SHARE = 0.4  # of all pairs
CROSSED_SHARE = 0.1  # of those that differ
MIRRORED, MIRRORED_SHARE = "mirrored", 0.35  # a question of a different pair and itself reworded; of the same
UNRELATED_SHARE = 0.25  # of a kind's number: the cache rarely asks about such pairs


@dataclass(frozen=True)
class Sources:
    """Makers by kind, for either label, what disguises a text, and what asks it in other words."""

    different: Mapping[str, Maker]
    same: Mapping[str, Maker]
    disguise: Disguise
    reword: Disguise


@dataclass(frozen=True)
class Plan:
    """What to mix: `per_kind` pairs of each kind of difference, and as many that are the same as fit them."""

    per_kind: int = 800
    seed: int = 5
    disguised: float = 0.3
    validation: float = 0.12
    without_kinds: frozenset[str] = frozenset()
    without_domains: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Parts:
    """Pairs to train on and pairs held out, in an order by seed.

    Attributes:
        by_hand: held out, too: pairs that another hand than the makers' wrote.
        dropped: reason → pairs not taken.
    """

    train: list[Example]
    validation: list[Example]
    by_hand: list[Example] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)

    def sha256(self) -> str:
        """Hash over all parts."""
        digest = hashlib.sha256()
        for example in (*self.train, *self.validation, *self.by_hand):
            digest.update(json.dumps(example).encode())
        return digest.hexdigest()

    def counts(self) -> dict[str, list[int]]:
        """Kind → pairs in the training part and in the held-out one."""
        parts = [Counter(example.kind for example in part) for part in (self.train, self.validation)]
        return {kind: [part[kind] for part in parts] for kind in sorted(set().union(*parts))}


def mix(
    sources: Sources, given: Sequence[Example], plan: Plan, embed: Embed, by_hand: Sequence[Example] = ()
) -> Parts:
    """Draws and splits.

    Args:
        given: pairs from files and public sets.
        by_hand: pairs to be held out as they are.
        embed: vectors of texts, by which near questions of different pairs are found.

    Raises:
        ArtefactError: a kind or a domain that is to be left out is not there, or nothing is left.
    """
    dropped: Counter[str] = Counter()
    drawn = [*given, *_draw(sources, given, plan)]
    _refuse_unknown(
        "--without-kind", plan.without_kinds, {*KINDS, CROSSED, MIRRORED, *(each.kind for each in drawn)}
    )
    _refuse_unknown("--without-domain", plan.without_domains, {each.domain for each in drawn})
    rng = random.Random(f"{plan.seed} mix")
    kept = []
    for example in drawn:
        if example.kind in plan.without_kinds or example.domain in plan.without_domains:
            dropped["left out"] += 1
        else:
            kept.append(_disguised(example, sources.disguise, plan.disguised, rng))
    kept = list(without_copies(kept, dropped))
    train, validation = split(kept, plan, dropped, by_hand)
    if CROSSED not in plan.without_kinds:
        for part in (train, validation):
            most = round(CROSSED_SHARE * sum(not each.same for each in part))
            part += cross(part, most, embed, rng)
    for part in (train, validation):
        rng.shuffle(part)
    if not {each.same for each in train} == {each.same for each in validation} == {True, False}:
        raise ArtefactError(
            f"{len(train)} pairs to train on and {len(validation)} held out: both need both labels; "
            "leave out less, or give more pairs"
        )
    return Parts(train, validation, list(without_copies(by_hand, dropped)), dropped)


def made(maker: Maker, same: bool, number: int, rng: random.Random) -> list[Example]:
    """Up to `number` pairs of one kind, no two alike."""
    found: dict[tuple[str, str], Example] = {}
    for _ in range(MOST_DRAWS * number):
        if len(found) == number:
            break
        pair = maker(rng)
        found.setdefault((pair.a, pair.b), Example(pair.a, pair.b, same, pair.kind, pair.domain))
    return list(found.values())


def read_files(paths: Iterable[Path]) -> list[Example]:
    """Pairs of JSON Lines. Raises: OperatorError: names file, line and field."""
    return [
        Example(pair.a, pair.b, pair.label == "same", pair.kind, pair.domain)
        for path in paths
        for pair in read_pairs(path)
    ]


def without_copies(examples: Iterable[Example], dropped: Counter[str]) -> Iterable[Example]:
    """Leaves out what the normaliser makes equal (the judge is never asked), and a pair's second time."""
    seen: set[frozenset[str]] = set()
    for example in examples:
        key = frozenset((normalised(example.a), normalised(example.b)))
        if len(key) == 1:
            # Of different ones this is a fault of the normaliser or of the pair.
            dropped["equal once normalised" + ("" if example.same else ", though different")] += 1
        elif key in seen:
            dropped["copies"] += 1
        else:
            seen.add(key)
            yield example


def split(
    examples: Sequence[Example], plan: Plan, dropped: Counter[str], by_hand: Sequence[Example] = ()
) -> tuple[list[Example], list[Example]]:
    """Holds out whole domains, until they are `plan.validation` of the pairs.

    No text of theirs, nor of `by_hand`, is left to train on.
    """
    domains = Counter(example.domain for example in examples)
    names = sorted(domains)
    random.Random(f"{plan.seed} domains").shuffle(names)
    held: set[str] = set()
    for name in names:
        if sum(domains[each] for each in held) + domains[name] <= plan.validation * len(examples):
            held.add(name)
    validation = [example for example in examples if example.domain in held]
    texts = {normalised(text) for example in (*validation, *by_hand) for text in example[:2]}
    train = []
    for example in examples:
        if example.domain in held:
            continue
        if texts.isdisjoint((normalised(example.a), normalised(example.b))):
            train.append(example)
        else:
            dropped["a text of the held-out part"] += 1
    return train, validation


def _draw(sources: Sources, given: Sequence[Example], plan: Plan) -> list[Example]:
    def of(makers: Mapping[str, Maker], same: bool, number: int) -> list[Example]:
        drawn = []
        for kind, maker in sorted(makers.items()):
            if kind not in plan.without_kinds:
                wanted = round(number * UNRELATED_SHARE) if kind == "unrelated" else number
                # Its own state for each kind, so that none depends on which others there are.
                drawn += made(maker, same, wanted, random.Random(f"{plan.seed} {kind}"))
        return drawn

    different = of(sources.different, False, plan.per_kind)
    there = Counter(example.same for example in given)
    differ = (len(different) + there[False]) * (1 + CROSSED_SHARE)
    wanted = SAME_SHARE / (1 - SAME_SHARE) * differ - there[True]
    kinds = len(sources.same.keys() - plan.without_kinds)
    if not kinds or wanted <= 0:
        return different
    mirrored = _mirrored(different, sources.reword, round(MIRRORED_SHARE * wanted), plan)
    return different + mirrored + of(sources.same, True, round((wanted - len(mirrored)) / kinds))


def _mirrored(examples: Sequence[Example], reword: Disguise, most: int, plan: Plan) -> list[Example]:
    """Questions of different pairs, each beside itself in other words, so that no frame tells the label."""
    if MIRRORED in plan.without_kinds:
        return []
    rng = random.Random(f"{plan.seed} {MIRRORED}")
    drawn = rng.sample(examples, min(most, len(examples)))
    texts = [(rng.choice(example[:2]), example.domain) for example in drawn]
    return [Example(text, reword(text, rng), True, MIRRORED, domain) for text, domain in texts]


def _disguised(example: Example, disguise: Disguise, share: float, rng: random.Random) -> Example:
    a, b = (disguise(text, rng) if rng.random() < share else text for text in example[:2])
    return example._replace(a=a, b=b)


def _refuse_unknown(option: str, asked: Iterable[str], known: Iterable[str]) -> None:
    if unknown := sorted(set(asked) - set(known)):
        raise ArtefactError(f"{option} {', '.join(unknown)}: known are {', '.join(sorted(known))}")
