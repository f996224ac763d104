"""On a tiny graph with a known answer: the logit is the ids of the other question less the first's."""

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
        helper.make_node("Cast", ["sum"], ["logit"], to=kind.FLOAT),
    ]
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [helper.make_tensor_value_info(name, kind.INT64, ["b", "l"]) for name in names]
    out = [helper.make_tensor_value_info("logit", kind.FLOAT, ["b"])]
    one = helper.make_tensor("one", kind.INT64, [1], [1])
    graph = helper.make_graph(nodes, "difference", inputs, out, [one])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(tmp_path / "model.onnx"))
    write(tmp_path, {"max_length": 8})
    return tmp_path


def write(directory, shapes, **extra):
    facts = {"runtime_version": "0", "precision": "fp32", "source": "test", "source_sha256": "none"}
    facts["extra"] = extra
    manifest = Manifest(task="judge", runtime="onnxruntime", command="python x", shapes=shapes, **facts)
    write_manifest(directory, manifest)


def likely(one, other):
    """The specials: [CLS] and [SEP] in front, a [SEP] behind."""
    logit = sum(map(WORDS.index, other.split())) + 3 - sum(map(WORDS.index, one.split())) - 5
    return 1 / (1 + np.exp(-logit))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_padding_and_order_of_a_batch_change_nothing(directory, device, monkeypatch):
    onnx_runtime.install(monkeypatch)
    engine = open_engine(directory, SETTINGS.model_copy(update={"device": device}))
    pairs = [("a", "b"), ("b", "a"), ("a b", "c c c"), ("c", "b")]
    np.testing.assert_allclose(engine.judge(pairs), [likely(*pair) for pair in pairs], atol=1e-6)


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


def test_a_judge_that_was_trained_with_alignment_gets_it(directory):
    """The graph takes token types as factors: `c` of the second text has 1 + 2 × lacking."""
    write(directory, {"max_length": 8}, aligned=True)
    (found,) = open_engine(directory, SETTINGS).judge([("a", "c")])
    a, c, cls, sep = (WORDS.index(word) for word in ("a", "c", "[CLS]", "[SEP]"))
    types = {"a": 4, "c": 5}
    second = types["a"] * a + types["c"] * c + sep
    first = cls + a + sep + c + sep - second
    assert found == pytest.approx(1 / (1 + np.exp(-(second - first))))


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
