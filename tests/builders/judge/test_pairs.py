"""The labelled pairs of the semantic cache: well-formed, balanced, and no pair of one part in the other."""

import json
import re
from collections import Counter
from difflib import SequenceMatcher
from pathlib import Path

import pytest

from tests.builders.scripts import BUILD, Later, importable
from trimodal.cache.audit.disagreements import Disagreements
from trimodal.cache.decision import Decision
from trimodal.cache.values import CacheScope, Entry
from trimodal.errors import OperatorError

pytestmark = pytest.mark.build
reader = Later("judge.pairs")
DATA = BUILD / "judge" / "data"
HARD = {"number", "unit", "date", "name", "negation", "antonym", "roles", "subject"}
CLASSES = HARD | {"paraphrase", "unrelated"}
# The least pairs of a class: paraphrases, a hard class, unrelated. It takes 368 hard pairs without a false
# hit to bound their rate to 1 % (Clopper-Pearson, two-sided 95 %: 1 - 0.025 ** (1 / 368) = 0.00997).
LEAST = {"tune": (240, 45, 60), "tune_b": (220, 50, 60), "tune_c": (220, 50, 60)}
COMMON = (
    "paraphrase",
    "fragment",
)  # the first is any of the others; the second is in the training part alone
SAME_FRAME = 3  # pairs that differ in one word only from one another


def pairs(part):
    lines = (DATA / f"{part}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def words(text):
    return tuple(re.findall(r"[^\W_]+", text.casefold()))


def content(pair):
    return frozenset((words(pair["a"]), words(pair["b"])))


@pytest.fixture(scope="module", autouse=True)
def _scripts():
    with importable():
        yield


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


SEALED = tuple(f"sealed_{number}" for number in range(1, 6))


def test_the_sealed_part_is_large_and_of_every_kind():
    rows = [pair for one in SEALED for pair in pairs(one)]
    counts = Counter(pair["class"] for pair in rows)
    assert len(rows) >= 1200
    assert sum(pair["label"] == "different" and pair["class"] != "unrelated" for pair in rows) >= 700
    assert {kind: counts[kind] for kind in reader.HARD if kind != "near" and counts[kind] < 25} == {}
    assert {kind: counts[kind] for kind in reader.SAME if kind not in COMMON and counts[kind] < 30} == {}
    assert len({pair["domain"] for pair in rows}) >= 100


def test_every_pair_can_be_read_and_is_there_once():
    files = sorted(DATA.glob("*.jsonl"))
    ids = [pair["id"] for path in files for pair in pairs(path.stem)]
    assert len(ids) == len(set(ids)) == len(reader.read_files(files))


def test_no_sealed_pair_is_trained_on_or_calibrated_on():
    others = [path.stem for path in DATA.glob("*.jsonl") if not path.stem.startswith("sealed")]
    assert len(others) >= 8
    known = {content(pair) for one in others for pair in pairs(one)}
    assert [pair for one in SEALED for pair in pairs(one) if content(pair) in known] == []


LINE = {"id": "x", "a": "How?", "b": "Why?", "label": "different", "class": "near"}


@pytest.mark.parametrize("asked", ["When?", "When?\u2028\x85\x0c\u2029"])
def test_what_the_audit_wrote_is_read_once_it_is_labelled(tmp_path: Path, asked: str) -> None:
    scope, entry = CacheScope("0" * 16, "", "faq", "0" * 64), Entry("Who?", "He.", "stop", 1, 64, 0.0, 1e12)
    assert Disagreements(tmp_path).write(Decision(scope, asked, "Who?", 0.97, True, entry), "At one.")
    (path,) = tmp_path.iterdir()
    path.write_text(
        path.read_text().replace('"label": null, "class": null', '"label": "different", "class": "person"')
    )
    (pair,) = reader.read_pairs(path)
    assert pair == reader.Example(asked, "Who?", False, "person", "faq")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 2: no JSON object in UTF-8"),
        ("[" * 100_000, "line 2: no JSON object in UTF-8"),
        ('"x"', "line 2: the line: "),
        (json.dumps({**LINE, "label": "perhaps"}), "line 2: label: "),
        (json.dumps({**LINE, "class": "mood"}), "line 2: class: "),
        (json.dumps({**LINE, "label": "same"}), "line 2: label: class 'near' is 'different'"),
        (json.dumps({**LINE, "a": "\ud800"}), "line 2: a: "),
        (json.dumps({**LINE, "more": 1}), "line 2: more: "),
    ],
)
def test_a_line_that_is_no_pair_is_named(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(f"{json.dumps(LINE)}\n{line}\n")
    with pytest.raises(OperatorError, match=re.escape(told)):
        reader.read_pairs(path)


def test_a_file_without_pairs_is_named(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    with pytest.raises(OperatorError, match="no readable file of pairs"):
        reader.read_pairs(path)
    path.write_text("\n")
    with pytest.raises(OperatorError, match="there are no pairs in it"):
        reader.read_pairs(path)
