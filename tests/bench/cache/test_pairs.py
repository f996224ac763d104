"""The labelled pairs of the semantic cache: well-formed, balanced, and no pair of one part in the other."""

import json
import re
from collections import Counter, defaultdict
from difflib import SequenceMatcher
from pathlib import Path

import pytest

import trimodal.bench

DATA = Path(trimodal.bench.__file__).parent / "cache" / "data"
HARD = {"number", "unit", "date", "name", "negation", "antonym", "roles", "subject"}
CLASSES = HARD | {"paraphrase", "unrelated"}
# The least pairs of a class: paraphrases, a hard class, unrelated. It takes 368 hard pairs without a false
# hit to bound their rate to 1 % (Clopper-Pearson, two-sided 95 %: 1 - 0.025 ** (1 / 368) = 0.00997).
LEAST = {"tune": (240, 45, 60), "tune_b": (220, 50, 60), "report": (220, 50, 60)}
SAME_FRAME = 3  # pairs that differ in one word only from one another


def pairs(part):
    lines = (DATA / f"{part}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def words(text):
    return tuple(re.findall(r"[^\W_]+", text.casefold()))


def content(pair):
    return frozenset((words(pair["a"]), words(pair["b"])))


@pytest.fixture(params=sorted(LEAST))
def part(request):
    return request.param


def test_every_line_has_the_schema(part):
    for pair in pairs(part):
        assert list(pair) == ["id", "a", "b", "label", "class", "domain"], pair
        assert all(isinstance(value, str) and value.strip() == value != "" for value in pair.values()), pair
        assert pair["class"] in CLASSES, pair
        assert pair["label"] == ("same" if pair["class"] == "paraphrase" else "different"), pair
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", pair["domain"]), pair
        for text in (pair["a"], pair["b"]):
            assert len(text.split()) <= 40, pair
            assert text.isprintable(), pair


def test_ids_are_unique_in_all_parts():
    ids = [pair["id"] for one in LEAST for pair in pairs(one)]
    assert len(ids) == len(set(ids))


def test_classes_have_enough_pairs_of_several_domains(part):
    rows = pairs(part)
    counts = Counter(pair["class"] for pair in rows)
    paraphrases, hard, unrelated = LEAST[part]
    assert counts["paraphrase"] >= paraphrases
    assert counts["unrelated"] >= unrelated
    assert {name: counts[name] for name in HARD if counts[name] < hard} == {}
    for name in HARD | {"paraphrase"}:
        assert len({pair["domain"] for pair in rows if pair["class"] == name}) >= 5, name


def test_no_question_is_used_twice_with_the_same_words(part):
    rows = pairs(part)
    assert [pair for pair in rows if len(content(pair)) == 1 and pair["label"] == "different"] == []
    again = [sorted(key) for key, count in Counter(map(content, rows)).items() if count > 1]
    assert again == []
    # One question may serve in two pairs, not in more: the pairs would not be independent.
    uses = Counter(text for pair in rows for text in {words(pair["a"]), words(pair["b"])})
    assert {text: count for text, count in uses.items() if count > 2} == {}


def test_hard_pairs_are_near_in_words(part):
    """A hard negative that shares few words would be refused by any threshold and prove nothing."""
    far = []
    for pair in pairs(part):
        if pair["class"] in HARD:
            one, other = words(pair["a"]), words(pair["b"])
            if SequenceMatcher(None, sorted(one), sorted(other), autojunk=False).ratio() < 0.5:
                far.append(pair)
    assert far == []


def test_few_pairs_share_a_sentence_frame(part):
    """The frame of a hard pair: what both its sentences have at their begin and end."""
    frames = Counter()
    for pair in pairs(part):
        if pair["class"] in HARD:
            one, other = words(pair["a"]), words(pair["b"])
            blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
            frames[tuple(one[block.a : block.a + block.size] for block in blocks if block.size)] += 1
    often = {frame: count for frame, count in frames.items() if count > SAME_FRAME}
    assert often == {}


@pytest.mark.parametrize("tuned_on", ["tune", pytest.param("tune_b", marks=pytest.mark.slow)])
def test_no_pair_of_the_reported_part_is_nearly_in_another(tuned_on):
    """Words in common over the longer one, in any order: a copy with its words shuffled is found too."""
    holders = defaultdict(set)
    tune = {text for pair in pairs(tuned_on) for text in (words(pair["a"]), words(pair["b"]))}
    for text in tune:
        for word in text:
            holders[word].add(text)
    near = []
    for pair in pairs("report"):
        for text in {words(pair["a"]), words(pair["b"])}:
            shared = Counter(known for word in set(text) for known in holders[word])
            for known, count in shared.items():
                if len(text) > 3 and count / max(len(set(text)), len(set(known))) > 0.8:
                    near.append((pair["id"], " ".join(text), " ".join(known)))
    assert near == []
