"""On a tiny graph with a known answer: the mean of the ids of a text, as an angle on the unit circle."""

import numpy as np
import pytest

from tests.doubles import onnx_runtime
from tests.doubles.onnx_texts import WORDS, write_model, write_shapes, write_tokenizer
from trimodal.embedding.engines.onnxruntime import open_engine
from trimodal.embedding.settings import EmbeddingSettings

SETTINGS = EmbeddingSettings(artefact="x", intra_op_threads=1)


@pytest.fixture
def directory(tmp_path):
    write_tokenizer(tmp_path, lambda tokenizer: tokenizer.enable_padding(length=64))
    nodes = [
        ("Mul", ["input_ids", "attention_mask"], "kept", {}),
        ("ReduceSum", ["kept", "one"], "sum", {}),
        ("ReduceSum", ["attention_mask", "one"], "count", {}),
        ("Cast", ["sum"], "sum_f", {"to": 1}),
        ("Cast", ["count"], "count_f", {"to": 1}),
        ("Div", ["sum_f", "count_f"], "mean", {}),
        ("Cos", ["mean"], "cos", {}),
        ("Sin", ["mean"], "sin", {}),
        ("Concat", ["cos", "sin"], "sentence_embedding", {"axis": 1}),
    ]
    write_model(tmp_path, ("input_ids", "attention_mask"), nodes, ["b", 2])
    write_shapes(tmp_path, "embedding", dimension=2, max_length=6)
    return tmp_path


def angle(*words):
    mean = np.mean([WORDS.index(word) for word in ("[CLS]", *words, "[SEP]")])
    return [np.cos(mean), np.sin(mean)]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_padding_and_order_of_a_batch_change_nothing(directory, device, monkeypatch):
    machine = onnx_runtime.install(monkeypatch)
    engine = open_engine(directory, SETTINGS.model_copy(update={"device": device}))
    embedded = engine.embed(["a b c", "c", "a a", "b"])
    wanted = [angle("a", "b", "c"), angle("c"), angle("a", "a"), angle("b")]
    np.testing.assert_allclose(embedded.vectors, wanted, atol=1e-6)
    assert embedded.tokens == (3, 1, 2, 1)
    sent = {name for asked in machine.named("Session.run") for name in asked["input_feed"]}
    assert sent == {"input_ids", "attention_mask"}


def test_long_texts_are_cut_and_their_whole_length_told(directory):
    engine = open_engine(directory, SETTINGS)
    assert (engine.max_tokens, engine.dimension) == (4, 2)
    embedded = engine.embed(["a b c a b c a", "a b c a"])
    np.testing.assert_allclose(embedded.vectors[0], embedded.vectors[1], atol=1e-6)
    assert embedded.tokens == (7, 4)
