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
mix = Later("judge.mix")


@pytest.fixture(scope="module", autouse=True)
def _scripts() -> Iterator[None]:
    with importable():
        yield


def mixed(**changes):
    given = [
        mix.Example("How old is Rome?", "What is the age of Rome?", True, "paraphrase", "history"),
        mix.Example("How old is Rome?", "How old is Lima?", False, "name", "history"),
    ]
    mixture = mix.Mixture(**{"validation": 0.3, **changes})
    return mix.mix([*given, *written(1, 120)], mixture, disguise, embed)


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


def test_a_label_without_pairs_is_told():
    with pytest.raises(ArtefactError, match="both need both labels"):
        mix.mix([each for each in written(1, 120) if not each.same], mix.Mixture(), disguise, embed)


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
        mix.Example("how do i boil an egg", "what is the way to boil eggs", True, "light", "cooking"),
        mix.Example("what is the way to boil eggs", "boiling eggs", True, "light", "cooking"),
        mix.Example("how do i boil a potato", "how do i boil an onion", False, "subject", "cooking"),
    ]
    groups = mix.Groups(examples)
    assert (
        groups.of("How do I boil an egg") == groups.of("boiling eggs") != groups.of("how do i boil a potato")
    )
    found = mix.cross(examples, 9, embed, random.Random(1))
    assert found
    for each in found:
        assert groups.of(each.a) != groups.of(each.b)
        assert (each.same, each.kind) == (False, "crossed")
    assert mix.cross(examples[:2], 9, embed, random.Random(1)) == []


def test_pairs_from_everywhere_are_never_held_out():
    given = [mix.Example(f"Is {n} odd?", f"Is {n + 1} odd?", False, "number", "mixed") for n in range(20)]
    parts = mix.mix([*given, *written(1)], mix.Mixture(validation=0.4), disguise, embed)
    assert "mixed" in {each.domain for each in parts.train}
    assert "mixed" not in {each.domain for each in parts.validation}


def test_texts_of_another_hand_are_not_trained_on():
    given = [
        mix.Example("How old is Rome?", "How old is Lima?", False, "name", "history"),
        mix.Example("Where is Rome?", "Where is Lima?", False, "name", "maps"),
    ]
    by_hand = [mix.Example("how old is lima?", "What is Lima's age?", True, "light", "towns")]
    mixture = mix.Mixture(validation=0.3, disguised=0)
    parts = mix.mix([*given, *written(1)], mixture, disguise, embed, by_hand)
    trained = {text for each in parts.train for text in each[:2]}
    assert "How old is Lima?" not in trained


def test_a_pair_of_another_hand_that_is_written_elsewhere_is_not_calibrated_on():
    """In disguise it may be trained on."""
    oslo = mix.Example("How old is Oslo?", "Where is Oslo?", False, "subject", "mixed")
    by_hand = [
        mix.Example("how old is oslo", "How many years has Oslo?", True, "heavy", "towns"),
        mix.Example("How old is Bergen?", "What age is Bergen?", True, "light", "towns"),
    ]
    parts = mix.mix([oslo, *written(1)], mix.Mixture(disguised=1), disguise, embed, by_hand)
    assert parts.by_hand == by_hand[1:]
    assert parts.sha256() != mix.mix([oslo, *written(1)], mix.Mixture(disguised=1), disguise, embed).sha256()
    assert parts.dropped["by other authors, with a text that is written elsewhere"] == 1
