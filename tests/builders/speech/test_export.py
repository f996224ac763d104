"""build/steps/speech/export.py and graph_check.py: the graphs, and their check, on random weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.builders.scripts import Later
from tests.speech.whisper.checkpoints import CONTEXTS_S
from trimodal.errors import ArtefactError
from trimodal.speech.whisper.artefact import SpeechShapes

pytestmark = [pytest.mark.build, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]
torch = Later("torch")
checkpoints, exporter, graph_check = (
    Later(f"steps.speech.{name}") for name in ("checkpoint", "export", "graph_check")
)
ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
GRAPHS = pytest.mark.parametrize("name", [ENCODER, DECODER])
PRECISIONS = pytest.mark.parametrize("precision", ["fp32", "fp16"])


@pytest.fixture(scope="module")
def loaded(checkpoint: Path):
    return checkpoints.load(checkpoint, "x")


@pytest.fixture(scope="module")
def shapes(loaded) -> SpeechShapes:
    return SpeechShapes.model_validate(loaded.shapes(CONTEXTS_S))


@pytest.fixture(scope="module")
def graphs(loaded, tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("graphs")
    for precision in ("fp32", "fp16"):
        (directory / precision).mkdir()
        exporter.export(loaded.network(), directory / precision, precision)
    return directory


@pytest.mark.parametrize(("precision", "most"), [("fp32", 1e-4), ("fp16", 1e-2)])
def test_the_graphs_compute_what_transformers_does(graphs, loaded, shapes, precision, most):
    rules = graph_check.Rules(end=0, never=(), not_first=(), positions=shapes.positions)
    decoding = graph_check.DeviceGraphs(
        graph_check.OnnxForward(graphs / precision), rules, buckets=(1, 3), frames=[200, 500], device="cpu"
    )
    errors = graph_check.largest_errors(loaded, decoding, shapes, (1, 3), "Comparing")
    assert all(0 < error < most for error in errors.values()), errors


@PRECISIONS
@GRAPHS
def test_tensorrts_parser_takes_every_operator(graphs, precision, name):
    from tests.builders.onnx.operators import unsupported

    model = onnx.load(graphs / precision / name)
    assert unsupported(model) == []
    model.graph.node[0].op_type = "DynamicQuantizeLinear"
    assert unsupported(model) != [], "or nothing is shown"


@PRECISIONS
@GRAPHS
def test_graphs_hold_standard_operators_and_free_axes_alone(graphs, precision, name):
    model = onnx.load(graphs / precision / name)
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
        assert (free["tokens"], free["index"], free["wanted"]) == (["batch", "n"], [], ["wanted"])
        assert free["past_key_1"] == free["past_value_0"] == ["batch"]
        assert free["cross_key_0"] == ["batch", "positions"]
        assert len(free) == 3 + 2 * 4


def test_fp16_keeps_on_the_host_what_it_was_and_caches_in_its_own_type(graphs):
    types = {}
    for name in (ENCODER, DECODER):
        graph = onnx.load(graphs / "fp16" / name).graph
        assert {weight.data_type for weight in graph.initializer} <= {TensorProto.FLOAT16, TensorProto.INT64}
        for value in (*graph.input, *graph.output):
            types.setdefault(value.type.tensor_type.elem_type, set()).add(value.name.split("_")[0])
    assert types == {
        TensorProto.FLOAT: {"features", "logits", "alignment"},
        TensorProto.FLOAT16: {"cross", "past", "key", "value"},
        TensorProto.INT64: {"tokens", "index", "wanted"},
    }


def test_embeddings_are_in_the_file_once(graphs, checkpoint):
    config = json.loads((checkpoint / "config.json").read_text())
    embeddings = config["vocab_size"] * config["d_model"] * 4
    assert embeddings < (graphs / "fp32" / DECODER).stat().st_size < 2 * embeddings


def test_weights_too_large_for_one_file_lie_beside_the_graph(loaded, graphs, tmp_path, monkeypatch):
    monkeypatch.setattr("steps.speech.export.EXTERNAL_ABOVE", 10_000)
    exporter.export(loaded.network(), tmp_path, "fp32")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {ENCODER, DECODER, f"{ENCODER}.data", f"{DECODER}.data"}
    features = torch.ones(2, 80, 60)
    made = []
    for directory in (tmp_path, graphs / "fp32"):
        forward = graph_check.OnnxForward(directory)
        outputs = {
            name: torch.empty(2, forward.sizes.heads, *sizes)
            for layer in range(forward.sizes.layers)
            for name, sizes in ((f"cross_key_{layer}", (16, 30)), (f"cross_value_{layer}", (30, 16)))
        }
        forward.encode(features, outputs)
        made.append(np.concatenate([each.numpy().ravel() for each in outputs.values()]))
    np.testing.assert_allclose(*made, atol=1e-5)


@pytest.mark.parametrize("factor", [1.01, float("nan")])
def test_graphs_that_differ_from_torch_are_refused(loaded, shapes, tmp_path, factor):
    places = loaded.model.model.decoder.embed_positions.weight
    kept = places.data.clone()
    places.data = places.data * factor
    exporter.export(loaded.network(), tmp_path, "fp32")
    places.data = kept
    with pytest.raises(
        ArtefactError, match="fp32 graphs not written: logits_relative_error .* is above 0.001"
    ):
        graph_check.check_graphs(loaded, tmp_path, "fp32", shapes)


def test_a_network_of_another_kind_is_refused(checkpoint, tmp_path):
    copy = tmp_path / "other"
    shutil.copytree(checkpoint, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"activation_function": "relu"}))
    with pytest.raises(ArtefactError, match="activation_function is relu, not gelu"):
        checkpoints.load(copy, "x").network()
