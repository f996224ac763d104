"""build/speech_onnx.py: the graphs themselves, their check, and both precisions, on small random weights."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from onnx import TensorProto

from tests.builders.engine_builds import command, sentence
from tests.speech.whisper.checkpoints import sound
from trimodal.manifest import read_manifest
from trimodal.speech.engines.onnxruntime import DECODER, ENCODER, KEEP, WhisperGraphs
from trimodal.speech.engines.protocol import open_engine
from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import Window

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


@pytest.fixture(scope="module")
def build():
    return command("speech_onnx")


@pytest.fixture
def artefacts(onnx_artefacts: Path) -> Path:
    return onnx_artefacts


def test_nothing_half_made_is_left(artefacts):
    assert [path.name for path in artefacts.iterdir() if path.name.startswith(".")] == []


def test_fp32_writes_torchs_tokens_also_after_int8_was_made(artefacts):
    check = read_manifest(artefacts / "fp32", task="speech", runtime="onnxruntime").check
    assert check["tokens"] > 20
    assert check["token_agreement"] == check["windows_identical"] == 1
    assert check["encoder_relative_error"] < 1e-5
    errors = check["fp32_graphs"]
    assert 0 < errors["hidden_error_max"] < 1e-4 * errors["hidden_std"]
    assert 0 < errors["logit_error_max"] < 1e-4 * errors["logit_std"]
    assert 0 < errors["alignment_error_max"] < 1e-5


def test_int8_is_near_and_still_computes_in_8_bits(artefacts):
    import onnx

    check = read_manifest(artefacts / "int8", task="speech", runtime="onnxruntime").check
    assert 1e-4 < check["encoder_relative_error"] < 0.1
    for name, products in ((ENCODER, 2 * 6 + 2 * 2), (DECODER, 2 * 8 + 1)):
        types = [node.op_type for node in onnx.load(artefacts / "int8" / name).graph.node]
        assert types.count("MatMulInteger") == products


def test_fp16_errs_by_less_than_a_hundredth_with_every_tensor_rounded_and_writes_torchs_tokens(artefacts):
    check = read_manifest(artefacts / "fp16", task="speech", runtime="onnxruntime").check
    errors = check["fp16_graphs"]
    assert 1e-4 < errors["hidden_error_max"] / errors["hidden_std"] <= 1e-2
    assert 1e-4 < errors["logit_error_max"] / errors["logit_std"] <= 1e-2
    assert 0 < errors["alignment_error_max"] <= 1e-2
    assert check["encoder_relative_error"] < 5e-3
    assert check["token_agreement"] > 0.95


def test_fp16_keeps_on_the_host_what_it_was_and_caches_in_its_own_type(artefacts):
    import onnx

    types = {}
    for name in (ENCODER, DECODER):
        graph = onnx.load(artefacts / "fp16" / name).graph
        assert {weight.data_type for weight in graph.initializer} <= {TensorProto.FLOAT16, TensorProto.INT64}
        for value in (*graph.input, *graph.output):
            types.setdefault(value.type.tensor_type.elem_type, set()).add(value.name.split("_")[0])
    assert types == {
        TensorProto.FLOAT: {"features", "logits", "alignment"},
        TensorProto.FLOAT16: {"hidden", "cross", "past", "key", "value"},
        TensorProto.INT64: {"tokens"},
    }


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", [ENCODER, DECODER])
def test_tensorrts_parser_takes_every_operator(artefacts, precision, name):
    import onnx

    unsupported = importlib.import_module("steps.tensorrt.operators").unsupported
    model = onnx.load(artefacts / precision / name)
    assert unsupported(model) == []
    model.graph.node[0].op_type = "DynamicQuantizeLinear"
    assert unsupported(model) != [], "or nothing is shown"


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", [ENCODER, DECODER])
def test_graphs_hold_standard_operators_and_free_axes_alone(artefacts, precision, name):
    import onnx

    model = onnx.load(artefacts / precision / name)
    onnx.checker.check_model(model, full_check=True)
    assert [(one.domain, one.version) for one in model.opset_import] == [("", 17)]
    assert {node.domain for node in model.graph.node} <= {"", "ai.onnx"}
    free = {
        each.name: [dim.dim_param for dim in each.type.tensor_type.shape.dim if dim.dim_param]
        for each in model.graph.input
    }
    if name == ENCODER:
        assert free == {"features": ["batch", "frames"]}
    else:
        assert free["tokens"] == ["batch", "n"]
        assert free["past_key_1"] == free["past_value_0"] == ["batch", "past"]
        assert free["cross_key_0"] == ["batch", "positions"]
        assert len(free) == 1 + 2 * 4


def test_embeddings_are_in_the_file_once(artefacts, checkpoint):
    config = json.loads((checkpoint / "config.json").read_text())
    embeddings = config["vocab_size"] * config["d_model"] * 4
    assert embeddings < (artefacts / "fp32" / DECODER).stat().st_size < 2 * embeddings


def test_the_manifest_tells_what_the_engine_needs(artefacts):
    manifest = read_manifest(artefacts / "int8", task="speech", runtime="onnxruntime")
    assert manifest.shapes == {
        "contexts_s": [5.0, 10.0], "languages": ["en"], "mel_bins": 80, "sample_rate": 16000,
        "padding": "silence", "positions": 448,
    }  # fmt: skip
    assert manifest.extra == {
        "alignment_heads": "named by the checkpoint", "multilingual": False, "random_weights": False,
        "suppressed": [], "suppressed_first": [], "opset": 17,
    }  # fmt: skip
    assert {ENCODER, DECODER, KEEP, "tokenizer.json"} <= set(manifest.files)


def test_the_engine_hears_the_same_in_both_precisions_on_most_windows(artefacts):
    windows = [Window(sound(3, seed)) for seed in range(8)]
    heard = {}
    for precision in ("fp32", "int8"):
        settings = RecogniseSettings(artefact="x", engine="onnxruntime", intra_op_threads=1)
        engine = open_engine(artefacts / precision, settings)
        heard[precision] = [one.text for one in engine.recognise(windows)]
        engine.close()
    assert len(set(heard["fp32"])) > 4
    assert sum(a == b for a, b in zip(heard["fp32"], heard["int8"], strict=True)) >= 4


@pytest.mark.slow
def test_weights_too_large_for_one_file_lie_beside_the_graph(checkpoint, tmp_path, artefacts):
    exporter = importlib.import_module("steps.speech.onnx_export")
    loaded = importlib.import_module("steps.speech.checkpoint").load(checkpoint, "x")
    writer = importlib.import_module("steps.speech.onnx_files")
    (tmp_path / "graphs").mkdir()
    with mock.patch.object(exporter, "EXTERNAL_ABOVE", 10_000):
        exporter.export(loaded, tmp_path / "graphs")
        for precision in ("fp32", "fp16", "int8"):
            out = tmp_path / precision
            out.mkdir()
            writer.write_graphs(tmp_path / "graphs", out, precision)
            names = {path.name for path in out.iterdir()}
            assert {ENCODER, DECODER, f"{ENCODER}.data", f"{DECODER}.data", KEEP} == names
            assert (out / DECODER).stat().st_size < 200_000
            both = []
            for directory in (out, artefacts / precision):
                graphs = WhisperGraphs(directory, device="cpu", threads=1)
                decoding = graphs.begin(graphs.encode(np.ones((2, 80, 60), np.float32)))
                both.append(decoding.step(np.array([[3, 4], [5, 6]]))[0].numpy())
            np.testing.assert_allclose(*both, atol=1e-5)


@pytest.mark.parametrize(("precision", "error"), [("fp32", 1e-4), ("fp16", 0.05)])
@pytest.mark.parametrize("graph", [True, False], ids=["graph", "host"])
def test_rows_that_are_kept_go_on_as_if_alone(artefacts, precision, error, graph):
    """By the graph that takes rows on the device, and on the host in artefacts that lack it."""
    graphs = WhisperGraphs(artefacts / precision, device="cpu", threads=1)
    assert graphs.keep is not None
    graphs.keep = graphs.keep if graph else None
    features = np.random.default_rng(0).normal(size=(3, 80, 100)).astype(np.float32)
    decoding = graphs.begin(graphs.encode(features))
    decoding.step(np.array([[1, 2], [3, 4], [5, 6]]))
    decoding.keep([2, 0])
    assert decoding.rows == 2
    kept = decoding.step(np.array([[7], [8]]))[0].numpy()
    for row, (index, tokens) in enumerate([(2, [5, 6, 7]), (0, [1, 2, 8])]):
        alone = graphs.begin(graphs.encode(features[index : index + 1]))
        logits = alone.step(np.array([tokens]))[0].numpy()
        np.testing.assert_allclose(kept[row], logits[0], atol=error)


def test_a_graph_that_differs_from_torch_is_refused(checkpoint, audio, build, tmp_path):
    export = importlib.import_module("speech_onnx").export

    def forgets_the_places(loaded, directory):
        places = loaded.model.model.decoder.embed_positions.weight
        kept = places.data.clone()
        places.data = places.data * 1.01
        export(loaded, directory)
        places.data = kept

    target = tmp_path / "fp32"
    shutil.copytree(checkpoint, target)
    with mock.patch("speech_onnx.export", forgets_the_places):
        result = build(checkpoint, "--out", target, "--audio", audio, "--contexts", "5,10")
    assert "the fp32 graphs differ from torch (logit_error_max" in sentence(result)
    assert (target / "model.safetensors").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["fp32"]


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.95, float("nan")])
def test_fp16_that_computes_something_else_is_refused(checkpoint, audio, build, tmp_path, alpha):
    write = importlib.import_module("steps.speech.onnx_files").write_rounded

    def loses_a_twentieth(directory, into):
        import onnx

        write(directory, into)
        model = onnx.load(into / DECODER)
        (logits,) = [node for node in model.graph.node if node.op_type == "Gemm"]
        next(each for each in logits.attribute if each.name == "alpha").f = alpha
        onnx.save(model, into / DECODER)

    with mock.patch("speech_onnx.write_rounded", loses_a_twentieth):
        out = ("--precision", "fp16", "--out", tmp_path / "fp16")
        result = build(checkpoint, *out, "--audio", audio, "--contexts", "5")
    assert "the fp16 graphs differ from torch (logit_error_max" in sentence(result)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_int8_that_agrees_too_little_is_refused(checkpoint, audio, build, tmp_path):
    out = ("--precision", "int8", "--out", tmp_path / "int8")
    result = build(checkpoint, *out, "--audio", audio, "--contexts", "5,10", "--min-agreement", 1)
    assert "less than --min-agreement 1: nothing was replaced" in sentence(result)
    assert list(tmp_path.iterdir()) == []
