import numpy as np
import pytest

from tests.vision.pictures import artefact
from trimodal.vision.artefact import read_classifier
from trimodal.vision.engine import open_engine, runtime_of
from trimodal.vision.settings import ClassifySettings

onnx = pytest.importorskip("onnx")


def test_runs_any_batch_and_gives_float32(tmp_path):
    directory = artefact(tmp_path / "onnx", classes=3)
    helper, kind = onnx.helper, onnx.TensorProto
    # The logits are the means of the three channels.
    nodes = [
        helper.make_node("Cast", ["pixels"], ["floats"], to=kind.FLOAT),
        helper.make_node("ReduceMean", ["floats"], ["logits"], axes=[2, 3], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "means",
        [helper.make_tensor_value_info("pixels", kind.UINT8, ["b", 3, 8, 8])],
        [helper.make_tensor_value_info("logits", kind.FLOAT, ["b", 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(directory / "model.onnx"))

    settings = ClassifySettings(artefact=str(directory), intra_op_threads=1)
    engine = open_engine(read_classifier(directory, runtime=runtime_of(settings.engine)), settings)
    pixels = np.random.default_rng(0).integers(0, 256, (5, 3, 8, 8), dtype=np.uint8)
    for batch in (pixels, pixels[:1], pixels[1::2]):
        logits = engine.classify(batch)
        assert logits.dtype == np.float32
        np.testing.assert_allclose(logits, batch.mean(axis=(2, 3)), rtol=1e-6)
