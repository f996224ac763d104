import importlib
import json
import random
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from tests.builders.scripts import importable
from trimodal.bench.cache.pairs import read_pairs
from trimodal.embedding.engines.protocol import Embedded


class Words:
    """Texts with the same words are alike."""

    dimension, max_tokens = 64, 100

    def embed(self, texts):
        vectors = np.full((len(texts), 64), 1e-3, np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().strip("?.!").split():
                vectors[row, sum(map(ord, word)) % 64] += 1
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return Embedded(vectors, tuple(len(text.split()) for text in texts))


@pytest.fixture(scope="module")
def built():
    with importable():
        return importlib.import_module("cache_guard")


@pytest.fixture
def pairs(tmp_path: Path):
    rows = [
        ("How do I boil eggs?", "What is the way to boil eggs?", "same", "paraphrase"),
        ("How do I boil eggs?", "How do I boil potatoes?", "different", "subject"),
        ("How do I fry eggs?", "How do I fry onions?", "different", "subject"),
    ]
    file = tmp_path / "pairs.jsonl"
    lines = (
        {"id": f"p{n}", "domain": "cooking", "a": a, "b": b, "label": label, "class": kind}
        for n, (a, b, label, kind) in enumerate(rows)
    )
    file.write_text("\n".join(map(json.dumps, lines)))
    return read_pairs(file)


def test_a_question_is_put_into_another_frame(built) -> None:
    draw = random.Random(0)
    for text, kept in (
        ("How do I boil eggs?", "boil eggs"),
        ("Why is the sky blue?", "is the sky blue"),
        ("boil me an egg", "boil me an egg"),
        ("Can I pay by card?", "pay by card"),
    ):
        again = built.reframed(text, draw)
        assert again != text
        assert kept in again


def test_hard_pairs_in_other_frames_and_near_strangers_are_learned_from(built, pairs) -> None:
    found = list(built.examples(pairs, set(), Words()))
    assert [example.pair for example in found if not example.made] == pairs
    made = [example.pair for example in found if example.made]
    assert sum(pair.kind == "subject" and pair.label == "different" for pair in made) > 4
    known = {frozenset((pair.a, pair.b)) for pair in pairs}
    strangers = [pair for pair in made if {pair.a, pair.b} <= {t for p in pairs for t in (p.a, p.b)}]
    assert strangers
    assert not known & {frozenset((pair.a, pair.b)) for pair in strangers}
    alike = {frozenset((pair.a, pair.b)) for pair in strangers}
    less = list(built.examples(pairs, alike, Words()))
    assert len(less) == len(found) - len(strangers)


def test_weights_are_those_of_the_features_as_they_are(built) -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(400, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, 1.0]
    y = x[:, 0] + x[:, 1] / 10 > 0.5
    weights, bias = built.learn(x, y)
    assert np.mean((x @ weights + bias > 0) == y) > 0.97


def test_help_names_no_place_of_this_machine(built) -> None:
    app = typer.Typer()
    app.command()(built.main)
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    assert "tests/cache/guard/kept_apart.txt" in shown
    assert str(built.ROOT) not in shown
