"""On a tiny graph with a known answer: a hundredth of the sum of all ids, each by 2 × its type - 1."""

import numpy as np
import pytest

from tests.doubles import onnx_runtime
from trimodal.errors import ArtefactError
from trimodal.judge.engines.onnxruntime import open_engine
from trimodal.judge.settings import JudgeSettings
from trimodal.manifest import Manifest, write_manifest

onnx = pytest.importorskip("onnx")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c"]
SETTINGS = JudgeSettings(artefact="x", intra_op_threads=1)


@pytest.fixture
def directory(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.enable_truncation(4)  # As some checkpoints have it; the engine must not keep it.
    tokenizer.save(str(tmp_path / "tokenizer.json"))

    helper, kind = onnx.helper, onnx.TensorProto
    nodes = [
        helper.make_node("Mul", ["input_ids", "attention_mask"], ["kept"]),
        helper.make_node("Mul", ["kept", "token_type_ids"], ["second"]),
        helper.make_node("Sub", ["kept", "second"], ["first"]),
        helper.make_node("Sub", ["second", "first"], ["signed"]),
        helper.make_node("ReduceSum", ["signed", "one"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["wide"], to=kind.FLOAT),
        helper.make_node("Mul", ["wide", "hundredth"], ["logit"]),
    ]
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [helper.make_tensor_value_info(name, kind.INT64, ["b", "l"]) for name in names]
    out = [helper.make_tensor_value_info("logit", kind.FLOAT, ["b"])]
    one = helper.make_tensor("one", kind.INT64, [1], [1])
    hundredth = helper.make_tensor("hundredth", kind.FLOAT, [1], [0.01])
    graph = helper.make_graph(nodes, "difference", inputs, out, [one, hundredth])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(tmp_path / "model.onnx"))
    write(tmp_path, {"max_length": 8})
    return tmp_path


def write(directory, shapes):
    facts = {"runtime_version": "0", "precision": "fp32", "source": "test", "source_sha256": "none"}
    manifest = Manifest(task="judge", runtime="onnxruntime", command="python x", shapes=shapes, **facts)
    write_manifest(directory, manifest)


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


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_damaged_file_says_how_to_build_again(directory, name):
    (directory / name).write_bytes(b"{}")
    with pytest.raises(ArtefactError, match="build again with: python x"):
        open_engine(directory, SETTINGS)


def test_a_manifest_without_shapes_is_refused(directory):
    write(directory, {})
    with pytest.raises(ArtefactError, match=r"shapes\.max_length"):
        open_engine(directory, SETTINGS)


def test_a_mistake_is_read_as_the_word_of_the_other_question(directory):
    import json

    file = directory / "tokenizer.json"
    told = json.loads(file.read_text())
    told["model"]["vocab"] |= {"password": 7}
    file.write_text(json.dumps(told))
    engine = open_engine(directory, SETTINGS)
    assert engine.judge([("pasword", "password"), ("password", "pasword")]).tolist() == [1, 1]
    (plain,) = engine.judge([("pasword", "a")])
    assert plain < 1
