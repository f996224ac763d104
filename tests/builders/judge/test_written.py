"""Blocks and lines, what the judge learns from as it is written by hand: read, refused, and drawn by seed."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.builders.scripts import Later
from trimodal.errors import ArtefactError
from trimodal.judge.normaliser import normalise

pytestmark = pytest.mark.build
blocks = Later("judge.blocks")
lines = Later("judge.lines")
pairs_of = Later("judge.pairs")

BLOCK = """\
# a comment
medicine; drug = ibuprofen | aspirin; who = adult | teenager
How much {drug} can an {who} take?
= light: What is the most {drug} an {who} may take?
= fronting: Of {drug}, how much can an {who} take?
! person: How much {drug} can an {who'} take?
! name: How much {drug'} can an {who} take?
"""
LINE = "home | {Fix|~Rep.|Repair!antonym:Break} a {tap|faucet!part:pipe}{ now|}?"


def read(module, text: str, folder: Path):
    file = folder / "written.txt"
    file.write_text(text, encoding="utf-8")
    return module.read_blocks([file]) if "{drug}" in text or "question" in text else module.read_lines([file])


class TestBlocks:
    def test_every_two_wordings_are_the_same_and_every_near_question_differs(self, tmp_path):
        (block,) = read(blocks, BLOCK, tmp_path)
        pairs = list(block.pairs(random.Random(1)))
        assert Counter((each.same, each.kind) for each in pairs) == {
            (True, "light"): 1, (True, "fronting"): 1, (True, "paraphrase"): 1,
            (False, "person"): 3, (False, "name"): 3,
        }  # fmt: skip
        assert {each.domain for each in pairs} == {"medicine"}

    def test_a_slot_has_one_value_in_a_pair_but_where_another_is_asked_for(self, tmp_path):
        (block,) = read(blocks, BLOCK, tmp_path)
        for seed in range(20):
            for each in block.pairs(random.Random(seed)):
                alike = ("ibuprofen" in each.a) == ("ibuprofen" in each.b)
                assert alike == (each.kind != "name"), each
                assert "{" not in each.a + each.b

    @pytest.mark.parametrize(
        ("old", "new", "told"),
        [
            ("= light:", "= lite:", "line 4: 'lite' is no kind of sameness"),
            ("! name:", "! light:", "line 7: 'light' is no kind of difference"),
            ("! person:", "person:", "line 6: neither '= kind: text' nor '! kind: text'"),
            ("most {drug}", "most {tablet}", "line 4: slot tablet is not in the first line"),
            ("most {drug} an {who}", "most {drug} one", "line 4: a wording holds every slot"),
            ("most {drug}", "most {drug'}", "line 4: a wording holds every slot, and none that is another"),
            ("| aspirin", "", "line 2: slot 'drug' wants two different values"),
        ],
    )
    def test_a_fault_is_told_with_its_line(self, tmp_path, old, new, told):
        with pytest.raises(ArtefactError, match=told):
            read(blocks, BLOCK.replace(old, new), tmp_path)


class TestLines:
    def test_choices_keep_the_answer_or_change_it(self, tmp_path):
        (line,) = read(lines, LINE, tmp_path)
        pairs = list(line.pairs(random.Random(1)))
        for each in pairs:
            changed = [
                any((word in each.a.lower()) != (word in each.b.lower()) for word in near)
                for near in (("break",), ("pipe",))
            ]
            assert any(changed) != each.same, each
        assert {each.kind for each in pairs} == {"antonym", "part", "abbreviation", "synonym", "light"}

    def test_no_word_tells_the_label(self, tmp_path):
        (line,) = read(lines, LINE, tmp_path)
        drawn = [each for seed in range(30) for each in line.pairs(random.Random(seed))]
        assert {each.same for each in drawn if "Break" in each.a + each.b} == {True, False}

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("home {a|b}?", "line 1: not 'domain [|] question'"),
            ("home | no choice?", "line 1: no choice"),
            ("home | {a|{b|c}}?", "line 1: a brace without its other one, or one choice inside another"),
            ("home | {a|b!wrong:c}?", "line 1: 'wrong' is no kind of difference"),
        ],
    )
    def test_a_fault_is_told_with_its_line(self, tmp_path, text, told):
        with pytest.raises(ArtefactError, match=told):
            read(lines, text, tmp_path)


@pytest.mark.slow
def test_the_projects_own_have_every_kind_and_many_domains():
    rng = random.Random(1)
    written = (*blocks.own_blocks(), *lines.own_lines())
    pairs = [each for one in written for each in one.pairs(rng)]
    kinds = Counter(each.kind for each in pairs)
    assert len(written) > 1000
    assert min(kinds[kind] for kind in pairs_of.HARD) > 200
    assert set(kinds) <= {*pairs_of.HARD, *pairs_of.SAME}
    assert len({each.domain for each in pairs}) > 60
    assert 0.2 < sum(each.same for each in pairs) / len(pairs) < 0.6
    assert all(each.a != each.b and not set("{}|") & set(each.a + each.b) - {"|"} for each in pairs)


@pytest.mark.slow
def test_no_text_of_a_sealed_pair_is_written_elsewhere():
    sources = Later("judge.sources")
    files = sorted(pairs_of.DATA.glob("*.tsv.xz"))
    sealed = [path for path in files if path.name.startswith(sources.SEALED)]
    others = pairs_of.read_files([path for path in files if path not in sealed])
    known = {normalise(text) for each in (*sources.written_pairs(5), *others) for text in each[:2]}
    pairs = pairs_of.read_files(sealed)
    assert len(pairs) > 2000
    assert [each for each in pairs if not known.isdisjoint(map(normalise, each[:2]))] == []


def test_what_once_went_wrong_is_what_a_judge_is_asked_about():
    pairs = Later("judge.sources").once_wrong()
    assert len(pairs) > 500
    assert all(normalise(each.a) != normalise(each.b) for each in pairs)
