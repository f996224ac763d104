"""On a tiny graph with a known answer: a hundredth of the sum of all ids, each by 2 × its type - 1."""

import json

import numpy as np
import pytest

from tests.doubles import onnx_runtime
from tests.doubles.onnx_texts import WORDS, write_model, write_shapes, write_tokenizer
from trimodal.judge.engines.onnxruntime import open_engine
from trimodal.judge.settings import JudgeSettings

SETTINGS = JudgeSettings(artefact="x", intra_op_threads=1)


@pytest.fixture
def directory(tmp_path):
    write_tokenizer(tmp_path, lambda tokenizer: tokenizer.enable_truncation(4))
    nodes = [
        ("Mul", ["input_ids", "attention_mask"], "kept", {}),
        ("Mul", ["kept", "token_type_ids"], "second", {}),
        ("Sub", ["kept", "second"], "first", {}),
        ("Sub", ["second", "first"], "signed", {}),
        ("ReduceSum", ["signed", "one"], "sum", {"keepdims": 0}),
        ("Cast", ["sum"], "wide", {"to": 1}),
        ("Mul", ["wide", "hundredth"], "logit", {}),
    ]
    inputs = ("input_ids", "attention_mask", "token_type_ids")
    write_model(tmp_path, inputs, nodes, ["b"], {"hundredth": 0.01})
    write_shapes(tmp_path, "judge", max_length=8)
    return tmp_path


PAIRS = {  # with the types of the tokens of both: side + 2 × aligned, moved or lacking
    ("a", "b"): ((4,), (5,)),
    ("b", "a"): ((4,), (5,)),
    ("a b", "c c c"): ((4, 4), (5, 5, 5)),
    ("a b", "a c"): ((0, 4), (1, 5)),
    ("a b", "b a"): ((0, 2), (3, 1)),
}


def likely(pair):
    """The specials: [CLS] and [SEP] of the first side, a [SEP] of the other."""
    logit = -WORDS.index("[CLS]")
    for text, types in zip(pair, PAIRS[pair], strict=True):
        logit += sum(
            WORDS.index(word) * (2 * each - 1) for word, each in zip(text.split(), types, strict=True)
        )
    return 1 / (1 + np.exp(-logit / 100))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_types_tell_what_the_other_has_and_padding_and_order_change_nothing(directory, device, monkeypatch):
    onnx_runtime.install(monkeypatch)
    engine = open_engine(directory, SETTINGS.model_copy(update={"device": device}))
    np.testing.assert_allclose(engine.judge(list(PAIRS)), [likely(pair) for pair in PAIRS], atol=1e-6)


def test_what_is_read_alike_needs_no_model(directory):
    engine = open_engine(directory, SETTINGS)
    engine._runner = None
    assert engine.judge([("A b?", "a b"), ("a", "A")]).tolist() == [1, 1]


def test_a_pair_that_is_too_long_is_not_cut_but_0(directory):
    engine = open_engine(directory, SETTINGS)
    same = engine.judge([("a b c", "a b c"), ("a b", "a b c"), ("a", "c " * 5000)])
    assert [each > 0 for each in same] == [False, True, False]


def test_what_no_token_tells_apart_is_0(directory):
    engine = open_engine(directory, SETTINGS)
    pairs = [("a 1", "a 2"), ("1 2", "2 1"), ("a 1", "b 1"), ("1 2", "1 2 a")]
    assert [each > 0 for each in engine.judge(pairs)] == [False, False, True, True]


def test_a_mistake_is_read_as_the_word_of_the_other_question(directory):
    file = directory / "tokenizer.json"
    told = json.loads(file.read_text())
    told["model"]["vocab"] |= {"password": 7}
    file.write_text(json.dumps(told))
    engine = open_engine(directory, SETTINGS)
    assert engine.judge([("pasword", "password"), ("password", "pasword")]).tolist() == [1, 1]
    (plain,) = engine.judge([("pasword", "a")])
    assert plain < 1
