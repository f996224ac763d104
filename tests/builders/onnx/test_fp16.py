"""build/steps/onnx/fp16.py: what becomes FP16, what stays FP32, and what is refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.builders.graphs import graph, layer, node, rounds_where_told, run, types
from tests.builders.scripts import importable

pytestmark = pytest.mark.build
with importable():
    from steps.onnx.fp16 import LARGE, infer_shapes, to_fp16
    from steps.onnx.rounding import rounded

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16


def test_weights_and_what_is_between_are_fp16_the_named_borders_are_not():
    model = layer()
    before = model.SerializeToString()
    found = types(to_fp16(model, keep=["y"]))
    assert model.SerializeToString() == before
    assert (found["x"], found["y"]) == (HALF, FLOAT)
    assert {found[name] for name in ("w0", "w1", "product0", "relu0", "product1")} == {HALF}
    found = types(to_fp16(model, keep=["x", "y"]))
    assert (found["x"], found["y"]) == (FLOAT, FLOAT)


def test_the_result_is_sorted_and_valid_and_near():
    model = layer()
    made = to_fp16(model, keep=["x", "y"])
    onnx.checker.check_model(made, full_check=True)  # it wants every tensor before its use
    x = np.random.default_rng(1).normal(size=(3, 32)).astype(np.float32)
    (expected,), (found,) = run(model, {"x": x}), run(made, {"x": x})
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert 0 < error < 1e-2


@rounds_where_told
def test_kept_nodes_compute_in_fp32_without_rounding_between_them():
    # 1 + 2^-12 is no FP16 number: rounded anywhere on the way, the difference would be 0.
    nodes = [
        node("Cast", ["bytes"], "floats", to=FLOAT),
        node("Add", ["floats", "little"], "sum"),
        node("Sub", ["sum", "floats"], "difference"),
        node("Mul", ["difference", "much"], "y"),
    ]
    model = graph(
        nodes,
        inputs={"bytes": (TensorProto.UINT8, [1])},
        outputs={"y": (FLOAT, [1])},
        weights={"little": np.array([2**-12], np.float32), "much": np.array([2.0**12], np.float32)},
    )
    kept = to_fp16(model, keep=["y"], keep_nodes=["floats", "sum", "difference"])
    casts = [each for each in kept.graph.node if each.op_type == "Cast"]
    assert len(casts) == 3  # from bytes, down to FP16 once, up at the end
    weights = {weight.name: weight.data_type for weight in kept.graph.initializer}
    assert weights == {"little": FLOAT, "much": HALF}
    (y,) = run(kept, {"bytes": np.array([1], np.uint8)})
    assert y[0] == 1.0


@rounds_where_told
def test_kept_nodes_at_the_borders_see_and_give_fp32():
    nodes = [
        node("Mul", ["x", "one"], "first"),
        node("Relu", ["first"], "inside"),
        node("Mul", ["inside", "one"], "last"),
        node("Add", ["last", "x"], "y"),
    ]
    border = {"x": (FLOAT, [1])}, {"y": (FLOAT, [1]), "last": (FLOAT, [1])}
    ones = {"one": np.array([1], np.float32)}
    model = graph(nodes, inputs=border[0], outputs=border[1], weights=ones)
    made = to_fp16(model, keep=["x", "y", "last"], keep_nodes=["first", "last", "y"])
    kinds = [[each.op_type, *each.output] for each in made.graph.node]
    assert len([kind for kind in kinds if kind[0] == "Cast"]) == 2  # around the ReLU
    assert types(made)["first"] == types(made)["inside"] == HALF
    fine = np.array([1 + 2**-12], np.float32)
    y, last = run(rounded(made), {"x": fine})
    assert last[0] == 1.0
    assert y[0] == 2 + 2**-12


def test_large_weights_survive_the_inference_of_shapes():
    wide = int(np.sqrt(LARGE)) + 8
    model = layer(width=wide, depth=1)
    before = model.SerializeToString()
    inferred = infer_shapes(model)
    assert model.SerializeToString() == before
    assert inferred.graph.initializer[0] == model.graph.initializer[0]
    assert {value.name for value in inferred.graph.value_info} == {"product0"}


def test_weights_beyond_fp16_are_refused_by_name_a_mask_is_not():
    from trimodal.errors import ArtefactError

    model = layer(depth=1)
    weight = onnx.numpy_helper.to_array(model.graph.initializer[0]).copy()
    weight[3, 4] = 7e4
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "w0"))
    with pytest.raises(ArtefactError, match=r"weight w0 reaches 7e\+04: FP16 ends at 65504"):
        to_fp16(model, keep=[])
    model = graph(
        [node("Add", ["x", "mask"], "y")],
        inputs={"x": (FLOAT, [2])},
        outputs={"y": (FLOAT, [2])},
        weights={"mask": np.array(np.finfo(np.float32).min)},
    )
    (y,) = run(to_fp16(model, keep=["x", "y"]), {"x": np.zeros(2, np.float32)})
    assert y.tolist() == [-65504.0, -65504.0]
