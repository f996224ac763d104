"""Rows of public sets, made up here, become pairs."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.builders.scripts import Later, importable
from trimodal.errors import ArtefactError

pytestmark = pytest.mark.build
public = Later("steps.judge.public")


@pytest.fixture(scope="module", autouse=True)
def _scripts() -> Iterator[None]:
    with importable():
        yield


def pairs(name, rows):
    return {(each.a, each.b, each.same) for each in public.as_examples(name, rows, 5)}


def quora(one, other, label):
    return {"question1": one, "question2": other, "label": label}


def test_duplicates_are_cleaned():
    rows = [
        quora("Is 5 prime?", "Is 5 a prime?", 1),
        quora("Who has 5 cats?", "Who has 6 cats?", 1),  # not the same
        quora("What is a cat?", "What are cats?", 1),
        quora("What are cats?", "What do cats be?", 1),
        quora("What is a cat?", "What do cats be?", 0),  # against the two before
        quora("What is a dog?", "What is a cat?", 0),
        quora("hidden", "test row", -1),
    ]
    assert pairs("qqp", rows) == {
        ("Is 5 prime?", "Is 5 a prime?", True),
        ("What is a cat?", "What are cats?", True),
        ("What are cats?", "What do cats be?", True),
        ("What is a dog?", "What is a cat?", False),
    }


def test_entailment_is_the_same_only_both_ways():
    def row(premise, hypothesis, label):
        return {"premise": premise, "hypothesis": hypothesis, "label": label}

    rows = [
        row("A dog runs.", "An animal runs.", 0),
        row("A man is asleep.", "A man sleeps.", 0),
        row("a man sleeps.", "A man is asleep.", 0),
        row("A man sleeps.", "A man sings.", 2),
        row("A man sings.", "A man sings well.", 1),
        row("no label", "of its authors", -1),
    ]
    for name in ("mnli", "snli", "anli"):
        assert pairs(name, rows) == {
            ("A man is asleep.", "A man sleeps.", True),
            ("a man sleeps.", "A man is asleep.", True),
            ("A man sleeps.", "A man sings.", False),
            ("A man sings.", "A man sings well.", False),
        }


def test_quantifiers_and_word_order():
    row = {"gold_label": "neutral"}
    med = {**row, "sentence1": "No dog barked.", "sentence2": "No animal barked."}
    assert pairs("med", [med]) == {("No dog barked.", "No animal barked.", False)}
    help_row = {**row, "ori_sentence": "All left.", "new_sentence": "All left early."}
    assert pairs("help", [help_row]) == {("All left.", "All left early.", False)}
    rows = [{"sentence1": "from A to B", "sentence2": "from B to A", "label": label} for label in (0, 1)]
    assert pairs("paws", rows) == {
        ("from A to B", "from B to A", False),
        ("from A to B", "from B to A", True),
    }


def test_an_edited_passage_gives_its_changed_sentence():
    def row(edit, text):
        return {"PassageID": 7, "PassageEditID": edit, "sentence1": text, "sentence2": "Did it rain?"}

    rows = [
        row(0, "It was May. It never rained. All were glad."),
        row(1, "It was May. There was no rain at all. All were glad."),
        row(2, "It was May. It rarely rained. All were glad."),
        row(2, "It was May. It rarely rained. All were glad."),  # asked about twice
        row(3, "It was June. It rained. All were glad."),  # more than one sentence
    ]
    assert sorted(pairs("condaqa", rows)) == [
        ("It never rained.", "It rarely rained.", False),
        ("It never rained.", "There was no rain at all.", True),
    ]


def test_every_set_of_the_command_line_is_known():
    assert set(Later("judge").PUBLIC) == set(public.PUBLIC_SETS)
    assert all(each.licence for each in public.PUBLIC_SETS.values())


def test_a_set_that_cannot_be_had_is_named(monkeypatch):
    with pytest.raises(ArtefactError, match="--public qqp: rows of nyu-mll/glue are not what was expected"):
        public.as_examples("qqp", [{"text": "another set"}], 5)
    with pytest.raises(ArtefactError, match="--public paws: .* gave no pairs"):
        public.as_examples("paws", [], 5)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ArtefactError, match="--public snli needs datasets: pip install datasets"):
        public.read_public("snli", 5)
    offline = type(sys)("datasets")
    offline.load_dataset = lambda *_, **__: (_ for _ in ()).throw(ConnectionError("no hub"))
    monkeypatch.setitem(sys.modules, "datasets", offline)
    with pytest.raises(ArtefactError, match="--public snli: the hub did not give stanfordnlp/snli"):
        public.read_public("snli", 5)
