"""steps/onnx/rounding.py: the roundings and overflows of FP16, which ONNX Runtime's CPU kernels leave out."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.builders.graphs import graph, layer, node, run
from tests.builders.scripts import importable
from trimodal.errors import ArtefactError

pytestmark = pytest.mark.build
with importable():
    from steps.onnx.fp16 import to_fp16
    from steps.onnx.rounding import rounded

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16


def test_each_tensor_is_what_numpy_makes_of_it_in_fp16():
    model = layer()
    halves = to_fp16(model, keep=["x", "y"])
    x = np.random.default_rng(1).normal(size=(3, 32)).astype(np.float32)
    value = x.astype(np.float16)
    for weight in model.graph.initializer:
        stored = np.frombuffer(weight.raw_data, np.float32).reshape(32, 32).astype(np.float16)
        product = value.astype(np.float32) @ stored.astype(np.float32)
        value = np.maximum(product.astype(np.float16), np.float16(0))
    (found,) = run(rounded(halves), {"x": x})
    # Sums in another order may round the last bit the other way.
    np.testing.assert_allclose(found, value.astype(np.float32), rtol=2e-3, atol=2e-3)
    assert np.array_equal(found, found.astype(np.float16))
    assert np.mean(found == value) > 0.9
    (as_it_is,) = run(halves, {"x": x})
    assert np.mean(as_it_is == value) < 0.9


def test_an_overflow_that_fp32_hides_is_seen():
    nodes = [node("Mul", ["x", "x"], "square"), node("Mul", ["square", "small"], "y")]
    model = graph(
        nodes,
        inputs={"x": (FLOAT, [1])},
        outputs={"y": (FLOAT, [1])},
        weights={"small": np.array([2.0**-8], np.float32)},
    )
    halves = to_fp16(model, keep=["x", "y"])
    x = np.array([512.0], np.float32)
    assert run(halves, {"x": x})[0].tolist() == [1024.0]
    assert run(rounded(halves), {"x": x})[0].tolist() == [np.inf]


def test_graphs_in_nodes_are_refused():
    branch = graph(
        [node("Constant", [], "c", value=helper.make_tensor("v", HALF, [], [1.0]))],
        inputs={},
        outputs={"c": (HALF, [])},
    ).graph
    model = graph(
        [helper.make_node("If", ["x"], ["y"], "choice", then_branch=branch, else_branch=branch)],
        inputs={"x": (TensorProto.BOOL, [])},
        outputs={"y": (HALF, [])},
    )
    with pytest.raises(ArtefactError, match=r"If \(choice\) has graphs of its own"):
        rounded(model)
