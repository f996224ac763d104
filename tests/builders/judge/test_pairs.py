"""The labelled pairs of the semantic cache: well-formed, balanced, and no pair of one part in the other."""

import json
import lzma
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.builders.scripts import BUILD, Later
from trimodal.errors import OperatorError

pytestmark = pytest.mark.build
reader = Later("judge.pairs")
DATA = BUILD / "judge" / "data"
# The first is any of the others; the second is in the training part alone.
COMMON = ("paraphrase", "fragment")
NAMES = tuple(path.name.partition(".")[0] for path in DATA.glob("*.tsv.xz"))
SEALED = tuple(f"sealed_{number}" for number in range(1, 6))


def pairs(part):
    return reader.read_pairs(DATA / f"{part}.tsv.xz")


def words(text):
    return tuple(re.findall(r"[^\W_]+", text.casefold()))


def content(pair):
    return frozenset((words(pair.a), words(pair.b)))


def test_the_sealed_part_is_large_and_of_every_kind():
    rows = [pair for one in SEALED for pair in pairs(one)]
    counts = Counter(pair.kind for pair in rows)
    assert len(rows) >= 1200
    assert sum(pair.kind in reader.HARD for pair in rows) >= 700
    assert {kind: counts[kind] for kind in reader.HARD if kind != "near" and counts[kind] < 25} == {}
    assert {kind: counts[kind] for kind in reader.SAME if kind not in COMMON and counts[kind] < 30} == {}
    assert len({pair.domain for pair in rows}) >= 100


def test_every_pair_can_be_read_and_is_in_a_file_once():
    found = {name: pairs(name) for name in NAMES}
    assert sum(map(len, found.values())) == 12_282
    assert [name for name, rows in found.items() if len({pair[:2] for pair in rows}) < len(rows)] == []


def test_no_sealed_pair_is_trained_on_or_calibrated_on():
    others = [name for name in NAMES if not name.startswith("sealed")]
    assert len(others) >= 8
    known = {content(pair) for one in others for pair in pairs(one)}
    assert [pair for one in SEALED for pair in pairs(one) if content(pair) in known] == []


LINE = {"id": "x", "a": "How?", "b": "Why?", "label": "different", "class": "near"}


def test_a_text_may_hold_other_ends_of_lines(tmp_path: Path) -> None:
    path, asked = tmp_path / "pairs.jsonl", "When?\u2028\x85\x0c\u2029"
    path.write_text(json.dumps({**LINE, "a": asked}, ensure_ascii=False) + "\n")
    assert reader.read_pairs(path) == [reader.Example(asked, "Why?", False, "near", "")]


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


@pytest.mark.parametrize("row", ["near\tmixed\tHow?", "near\tmixed\tHow?\tWhy?\t", "How? Why?"])
def test_a_row_that_is_no_pair_is_named(tmp_path: Path, row: str) -> None:
    path = tmp_path / "pairs.tsv.xz"
    path.write_bytes(lzma.compress(f"near\tmixed\tHow?\tWhy?\n{row}\n".encode()))
    with pytest.raises(OperatorError, match="line 2: not class, domain and two questions between tabs"):
        reader.read_pairs(path)
    path.write_bytes(lzma.compress(b"mood\tmixed\tHow?\tWhy?\n"))
    with pytest.raises(OperatorError, match="line 1: class: "):
        reader.read_pairs(path)


def test_a_file_without_pairs_is_named(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    with pytest.raises(OperatorError, match="no readable file of pairs"):
        reader.read_pairs(path)
    for damaged in (b"no archive", lzma.compress(b"near")[:-4]):
        packed = tmp_path / "pairs.tsv.xz"
        packed.write_bytes(damaged)
        with pytest.raises(OperatorError, match="no readable file of pairs"):
            reader.read_pairs(packed)
    path.write_text("\n")
    with pytest.raises(OperatorError, match="there are no pairs in it"):
        reader.read_pairs(path)
