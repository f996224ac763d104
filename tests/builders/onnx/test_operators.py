"""operators.py: graphs that the parser takes, and each kind that it does not."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.builders.graphs import graph, layer, node
from tests.builders.scripts import importable

pytestmark = pytest.mark.build
with importable():
    from tests.builders.onnx.operators import unsupported

FLOAT, INT64, UINT8, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8, TensorProto.BOOL


def one(operator, kinds, output=FLOAT, weights=None, shape=(2, 4), opset=17, **attributes):
    """A graph of one node over the inputs a, b, …, of the types in `kinds`, and over the weights."""
    names = "abc"[: len(kinds)]
    inputs = {name: (kind, shape) for name, kind in zip(names, kinds, strict=True)}
    nodes = [node(operator, [*names, *(weights or {})], "y", **attributes)]
    return graph(nodes, inputs=inputs, outputs={"y": (output, None)}, weights=weights, opset=opset)


def test_what_the_list_has_passes():
    assert unsupported(layer()) == []
    assert unsupported(one("Cast", [UINT8], to=FLOAT)) == []
    assert unsupported(one("ReduceSum", [FLOAT], weights={"axes": np.array([1])})) == []
    assert unsupported(one("Where", [BOOL, FLOAT, FLOAT])) == []


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (one("Det", [FLOAT], shape=(2, 2)), "Det (y): not in the list"),
        (one("CumSum", [INT64], INT64, {"axis": np.array(1)}), "CumSum (y): is given int64"),
        (one("Mul", [UINT8, UINT8], UINT8), "Mul (y): is given uint8"),
        (one("ReduceMean", [FLOAT, INT64], shape=(2,), opset=18), "its input b must be constant"),
        (one("Relu", [FLOAT], opset=21), "opset 21 is outside of 9 to 20"),
        (one("Relu", [TensorProto.DOUBLE], TensorProto.DOUBLE), "Relu (y): is given double"),
    ],
    ids=["operator", "type", "bytes", "constant", "opset", "double"],
)
def test_what_it_lacks_is_told(model, told):
    assert [problem for problem in unsupported(model) if told in problem]


def test_each_problem_is_told_once_and_the_operators_of_others_are_not_taken():
    nodes = [
        helper.make_node("FusedMatMul", ["x", "x"], ["a"], "fused", domain="com.microsoft"),
        helper.make_node("MaxPool", ["x"], ["y", "places"], "pool", kernel_shape=[1, 1]),
    ]
    shape = (FLOAT, [1, 1, 4, 4])
    model = graph([nodes[1]], inputs={"x": shape}, outputs={"y": (FLOAT, None), "places": (INT64, None)})
    assert unsupported(model) == ["MaxPool (pool): only its first output is supported"]
    model.graph.node.append(nodes[0])
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert any(problem.startswith("FusedMatMul (fused): not in the list") for problem in unsupported(model))


@pytest.mark.parametrize(
    ("zero", "told"),
    [
        (np.array(0, np.int8), []),
        (np.array(3, np.int8), ["its zero point must be a constant 0"]),
        (np.array(0, np.uint8), ["gives uint8, which no tensor between nodes may have", "is given uint8"]),
    ],
)
def test_quantisation_is_symmetric_and_signed(zero, told):
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zero"], "q"),
        node("DequantizeLinear", ["q", "scale", "zero"], "y"),
    ]
    weights = {"scale": np.array(0.1, np.float32), "zero": zero}
    model = graph(nodes, inputs={"x": (FLOAT, [2])}, outputs={"y": (FLOAT, [2])}, weights=weights)
    problems = unsupported(model)
    assert bool(problems) == bool(told)
    assert all(any(part in problem for problem in problems) for part in told)


def test_graphs_in_nodes_are_looked_into():
    branch = graph([node("Det", ["x"], "c")], inputs={"x": (FLOAT, [2, 2])}, outputs={"c": (FLOAT, [])}).graph
    del branch.input[:]
    choice = helper.make_node("If", ["b"], ["y"], "choice", then_branch=branch, else_branch=branch)
    inputs = {"b": (BOOL, []), "x": (FLOAT, [2, 2])}
    (first, _) = unsupported(graph([choice], inputs=inputs, outputs={"y": (FLOAT, [])}))
    assert first.startswith("Det (c): not in the list")
