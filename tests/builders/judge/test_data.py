"""What the judge learns from: drawn by seed, both labels, nothing of one part in the other."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.builders.judge.made_up import disguise, embed, written
from tests.builders.scripts import Later, importable
from trimodal.errors import ArtefactError
from trimodal.judge.normaliser import normalise

pytestmark = pytest.mark.build
data = Later("steps.judge.data")
crossing = Later("steps.judge.crossing")


@pytest.fixture(scope="module", autouse=True)
def _scripts() -> Iterator[None]:
    with importable():
        yield


def mixed(**changes):
    given = [
        data.Example("How old is Rome?", "What is the age of Rome?", True, "paraphrase", "history"),
        data.Example("How old is Rome?", "How old is Lima?", False, "name", "history"),
    ]
    plan = data.Plan(**{"validation": 0.3, **changes})
    return data.mix([*given, *written(1, 120)], plan, disguise, embed)


def test_a_seed_gives_the_same_pairs_and_another_one_others():
    assert mixed() == mixed()
    assert mixed().sha256() == mixed().sha256() != mixed(seed=6).sha256()


def test_both_parts_have_both_labels_and_no_text_in_common():
    parts = mixed()
    assert {each.domain for each in parts.train}.isdisjoint(each.domain for each in parts.validation)
    texts = [
        {normalise(text) for each in part for text in each[:2]} for part in (parts.train, parts.validation)
    ]
    assert texts[0].isdisjoint(texts[1])
    same = Counter(each.same for each in parts.train + parts.validation)
    assert 0.3 < same[True] / same.total() < 0.5
    assert 0.1 < len(parts.validation) / (len(parts.train) + len(parts.validation)) < 0.45


def test_no_pair_is_there_twice_or_equal_once_normalised():
    parts = mixed()
    keys = [frozenset(map(normalise, each[:2])) for each in parts.train + parts.validation]
    assert len(keys) == len(set(keys))
    assert {len(key) for key in keys} == {2}
    assert parts.dropped["equal once normalised"] > 20  # of kind `case`, those without a disguise
    assert not parts.dropped["equal once normalised, though different"]


def test_a_kind_and_a_domain_that_are_left_out_are_gone():
    parts = mixed(without_kinds=frozenset({"tense"}), without_domains=frozenset({"pets"}))
    every = parts.train + parts.validation
    assert "tense" not in {each.kind for each in every}
    assert "pets" not in {each.domain for each in every}
    assert {"number", "light"} <= {each.kind for each in every}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"without_kinds": frozenset({"mood"})}, "--without-kind mood: known are .*number"),
        ({"without_domains": frozenset({"moon"})}, "--without-domain moon: known are .*cooking"),
        ({"without_kinds": frozenset({"light", "case", "paraphrase", "mirrored"})}, "both need both labels"),
    ],
)
def test_what_cannot_be_left_out_is_told(changes, told):
    with pytest.raises(ArtefactError, match=told):
        mixed(**changes)


def test_a_disguise_is_on_sides_of_both_labels():
    counts = Counter()
    for each in mixed().train:
        if each.kind in ("number", "light"):
            counts[each.same] += 1
            counts[each.same, "disguised"] += any("," in text for text in each[:2])
    for same in (True, False):
        assert 0.4 < counts[same, "disguised"] / counts[same] < 0.65  # 1 - 0.7²


def test_near_questions_of_different_groups_are_crossed():
    examples = [
        data.Example("how do i boil an egg", "what is the way to boil eggs", True, "light", "cooking"),
        data.Example("what is the way to boil eggs", "boiling eggs", True, "light", "cooking"),
        data.Example("how do i boil a potato", "how do i boil an onion", False, "subject", "cooking"),
    ]
    groups = crossing.Groups(examples)
    assert (
        groups.of("How do I boil an egg") == groups.of("boiling eggs") != groups.of("how do i boil a potato")
    )
    found = crossing.cross(examples, 9, embed, random.Random(1))
    assert found
    for each in found:
        assert groups.of(each.a) != groups.of(each.b)
        assert (each.same, each.kind) == (False, "crossed")
    assert crossing.cross(examples[:2], 9, embed, random.Random(1)) == []


def test_pairs_from_everywhere_are_never_held_out():
    given = [data.Example(f"Is {n} odd?", f"Is {n + 1} odd?", False, "number", "mixed") for n in range(20)]
    parts = data.mix([*given, *written(1)], data.Plan(validation=0.4), disguise, embed)
    assert "mixed" in {each.domain for each in parts.train}
    assert "mixed" not in {each.domain for each in parts.validation}


def test_texts_of_another_hand_are_not_trained_on():
    given = [
        data.Example("How old is Rome?", "How old is Lima?", False, "name", "history"),
        data.Example("Where is Rome?", "Where is Lima?", False, "name", "maps"),
    ]
    by_hand = [data.Example("how old is lima?", "What is Lima's age?", True, "light", "towns")]
    plan = data.Plan(validation=0.3, disguised=0)
    parts = data.mix([*given, *written(1)], plan, disguise, embed, by_hand)
    trained = {text for each in parts.train for text in each[:2]}
    assert "How old is Lima?" not in trained


def test_a_pair_of_another_hand_that_is_written_elsewhere_is_not_calibrated_on():
    """In disguise it may be trained on."""
    oslo = data.Example("How old is Oslo?", "Where is Oslo?", False, "subject", "mixed")
    by_hand = [
        data.Example("how old is oslo", "How many years has Oslo?", True, "heavy", "towns"),
        data.Example("How old is Bergen?", "What age is Bergen?", True, "light", "towns"),
    ]
    parts = data.mix([oslo, *written(1)], data.Plan(disguised=1), disguise, embed, by_hand)
    assert parts.by_hand == by_hand[1:]
    assert parts.sha256() != data.mix([oslo, *written(1)], data.Plan(disguised=1), disguise, embed).sha256()
    assert parts.dropped["by another hand, with a text that is written elsewhere"] == 1
