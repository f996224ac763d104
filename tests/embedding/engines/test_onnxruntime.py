"""On a tiny graph with a known answer: the mean of the ids of a text, as an angle on the unit circle."""

import numpy as np
import pytest

from tests.doubles import onnx_runtime
from trimodal.embedding.engines.onnxruntime import open_engine
from trimodal.embedding.settings import EmbeddingSettings
from trimodal.errors import ArtefactError
from trimodal.manifest import Manifest, write_manifest

onnx = pytest.importorskip("onnx")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c"]
SETTINGS = EmbeddingSettings(artefact="x", intra_op_threads=1)


@pytest.fixture
def directory(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.enable_padding(length=64)  # As some checkpoints have it; the engine must not keep it.
    tokenizer.save(str(tmp_path / "tokenizer.json"))

    helper, kind = onnx.helper, onnx.TensorProto
    nodes = [
        helper.make_node("Mul", ["input_ids", "attention_mask"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "one"], ["sum"]),
        helper.make_node("ReduceSum", ["attention_mask", "one"], ["count"]),
        helper.make_node("Cast", ["sum"], ["sum_f"], to=kind.FLOAT),
        helper.make_node("Cast", ["count"], ["count_f"], to=kind.FLOAT),
        helper.make_node("Div", ["sum_f", "count_f"], ["mean"]),
        helper.make_node("Cos", ["mean"], ["cos"]),
        helper.make_node("Sin", ["mean"], ["sin"]),
        helper.make_node("Concat", ["cos", "sin"], ["sentence_embedding"], axis=1),
    ]
    ids = [
        helper.make_tensor_value_info(name, kind.INT64, ["b", "l"])
        for name in ("input_ids", "attention_mask")
    ]
    out = [helper.make_tensor_value_info("sentence_embedding", kind.FLOAT, ["b", 2])]
    one = helper.make_tensor("one", kind.INT64, [1], [1])
    graph = helper.make_graph(nodes, "mean", ids, out, [one])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(tmp_path / "model.onnx"))
    write(tmp_path, {"dimension": 2, "max_length": 6})
    return tmp_path


def write(directory, shapes):
    facts = {"runtime_version": "0", "precision": "fp32", "source": "test", "source_sha256": "none"}
    manifest = Manifest(task="embedding", runtime="onnxruntime", command="python x", shapes=shapes, **facts)
    write_manifest(directory, manifest)


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


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_damaged_file_says_how_to_build_again(directory, name):
    (directory / name).write_bytes(b"{}")
    with pytest.raises(ArtefactError, match="build again with: python x"):
        open_engine(directory, SETTINGS)


def test_a_manifest_without_shapes_is_refused(directory):
    write(directory, {"dimension": 2})
    with pytest.raises(ArtefactError, match=r"damaged \(shapes\.max_length\): build again with: python x"):
        open_engine(directory, SETTINGS)
