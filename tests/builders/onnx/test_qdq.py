"""build/steps/onnx/qdq.py: which layers are quantised, and that the Q/DQ is of TensorRT's form."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from tests.builders.graphs import graph, node, rounds_where_told, run, types
from tests.builders.scripts import importable

pytestmark = pytest.mark.build
with importable():
    from steps.onnx.fp16 import to_fp16
    from steps.onnx.qdq import LARGEST, OPSET, TYPES, choose, quantise, ranges
    from steps.onnx.rounding import rounded

    from tests.builders.onnx.operators import unsupported

FLOAT = TensorProto.FLOAT
GENERATOR = np.random.default_rng(0)


def weight(*shape: int) -> np.ndarray:
    spread = GENERATOR.uniform(0.2, 3, (shape[0], *[1] * (len(shape) - 1)))
    return (GENERATOR.normal(size=shape) * spread / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    """A residual block of convolutions, as after folding the batch norms, and two linear layers."""
    nodes = [
        node("Conv", ["x", "w1", "b1"], "c1", pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], "r1"),
        node("Conv", ["r1", "w2", "b2"], "c2", pads=[1, 1, 1, 1]),
        node("Add", ["c2", "r1"], "sum"),
        node("Relu", ["sum"], "r2"),
        node("GlobalAveragePool", ["r2"], "pooled"),
        node("Flatten", ["pooled"], "flat"),
        node("MatMul", ["flat", "w3"], "hidden"),
        node("Gemm", ["hidden", "w4", "b4"], "y", transB=1),
    ]
    weights = {"w1": weight(32, 32, 3, 3), "w2": weight(32, 32, 3, 3), "w3": weight(48, 32).T.copy()}
    weights |= {"w4": weight(20, 48), "b1": weight(32), "b2": weight(32), "b4": weight(20)}
    picture = {"x": (FLOAT, ["batch", 32, 8, 8])}
    return graph(nodes, inputs=picture, outputs={"y": (FLOAT, ["batch", 20])}, weights=weights, opset=OPSET)


@pytest.fixture(scope="module")
def pictures() -> np.ndarray:
    return GENERATOR.normal(size=(12, 32, 8, 8)).astype(np.float32)


def test_layers_are_chosen_the_last_one_and_one_branch_of_the_sum_are_not(model):
    plan = choose(model, "int8")
    assert plan.weighted == {"c1": (1, 0), "c2": (1, 0), "hidden": (1, 1)}
    assert plan.joined == {"sum": 1}  # r1: the convolution's own branch stays as it is
    assert plan.activations == ("x", "r1", "flat")
    assert set(choose(model, "fp8").weighted) == {"c1", "c2", "hidden"}


@pytest.mark.parametrize(
    ("shape", "group", "kinds"),
    [
        ((64, 3, 7, 7), 1, {"int8"}),  # the first layer of a ResNet
        ((64, 3, 7, 5), 1, set()),
        ((96, 1, 7, 7), 96, {"int8"}),  # each channel by itself
        ((12, 1, 3, 3), 12, set()),
        ((8, 8, 3, 3), 1, set()),
        ((32, 32, 7, 7), 1, {"int8"}),  # FP8 kernels end at 32 places
        ((64, 64, 3, 3), 1, {"int8", "fp8"}),
    ],
)
def test_convolutions_that_are_worth_it(shape, group, kinds):
    nodes = [
        node("Conv", ["x", "w"], "c", group=group, kernel_shape=shape[2:]),
        node("Conv", ["c", "last"], "y"),
    ]
    weights = {"w": weight(*shape), "last": weight(32, shape[0], 1, 1)}
    inputs = {"x": (FLOAT, [1, shape[1] * group, 9, 9])}
    made = graph(nodes, inputs=inputs, outputs={"y": (FLOAT, None)}, weights=weights, opset=OPSET)
    assert {kind for kind in ("int8", "fp8") if "c" in choose(made, kind).weighted} == kinds


def test_products_of_activations_and_small_ones_stay_in_floats():
    nodes = [
        node("MatMul", ["x", "x"], "square"),
        node("MatMul", ["square", "narrow"], "n"),
        node("MatMul", ["square", "wide"], "m"),
        node("MatMul", ["m", "wide"], "y"),
    ]
    weights = {"narrow": weight(32, 8), "wide": weight(32, 32)}
    outputs = {"y": (FLOAT, None), "n": (FLOAT, None)}
    made = graph(nodes, inputs={"x": (FLOAT, [32, 32])}, outputs=outputs, weights=weights, opset=OPSET)
    assert set(choose(made, "int8").weighted) == {"m"}


def test_ranges_are_the_largest_magnitudes_of_all_batches(model, pictures):
    batches = [{"x": pictures[:5]}, {"x": -2 * pictures[5:]}]
    found = ranges(model, ["x", "r1"], batches)
    assert found["x"] == max(np.abs(pictures[:5]).max(), 2 * np.abs(pictures[5:]).max())
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    probe.graph.output.append(onnx.helper.make_tensor_value_info("r1", FLOAT, None))
    assert found["r1"] == pytest.approx(max(run(probe, batch)[1].max() for batch in batches))


def test_of_a_sum_the_branch_that_is_no_convolution_is_quantised_or_the_second_of_two():
    nodes = [
        node("Conv", ["x", "w1"], "c1"),
        node("Conv", ["x", "w2"], "c2"),
        node("Add", ["x", "c1"], "skip"),  # the graph's own input, and before the convolution
        node("Add", ["c1", "c2"], "both"),
        node("Add", ["skip", "both"], "neither"),
        node("Add", ["neither", "bias"], "biased"),
        node("Conv", ["biased", "w3"], "y"),
    ]
    weights = {name: weight(32, 32, 1, 1) for name in ("w1", "w2", "w3")} | {"bias": weight(1)}
    border = {"x": (FLOAT, [1, 32, 4, 4])}, {"y": (FLOAT, [1, 32, 4, 4])}
    made = graph(nodes, inputs=border[0], outputs=border[1], weights=weights, opset=OPSET)
    assert choose(made, "int8").joined == {"skip": 0, "both": 1}


@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_the_form_is_tensorrts(model, pictures, kind):
    plan = choose(model, kind)
    made = to_fp16(
        quantise(model, plan, ranges(model, plan.activations, [{"x": pictures}]), kind), keep=["x", "y"]
    )
    onnx.checker.check_model(made, full_check=True)
    assert unsupported(made) == []
    assert len(model.graph.node) == 9
    weights = {each.name: each for each in made.graph.initializer}
    users: dict[str, list[str]] = {}
    for each in made.graph.node:
        for name in each.input:
            users.setdefault(name, []).append(each.name)
    assert users["r1/dq"] == ["c2", "sum"]  # one pair for both
    kinds = types(made)
    for each in made.graph.node:
        if each.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        scale, zero = weights[each.input[1]], weights[each.input[2]]
        assert scale.data_type == TensorProto.FLOAT16
        assert (numpy_helper.to_array(scale) > 0).all()
        assert zero.data_type == TYPES[kind]
        assert not numpy_helper.to_array(zero).astype(np.float32).any()
        quantised = each.output[0] if each.op_type == "QuantizeLinear" else each.input[0]
        assert kinds[quantised] == TYPES[kind]
        if each.input[0] in weights:
            axis = next(attribute.i for attribute in each.attribute if attribute.name == "axis")
            assert list(scale.dims) == [weights[each.input[0]].dims[axis]]
            assert scale.dims[0] > 1
        else:
            assert list(scale.dims) == []
    assert sum(each.op_type == "DequantizeLinear" for each in made.graph.node) == 6
    for name in ("b1", "b2", "w4", "b4"):
        assert weights[name].data_type == TensorProto.FLOAT16
    assert not {"w1", "w2", "w3"} & set(weights)  # nothing is stored twice


@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_weights_and_activations_come_back_within_half_a_step(model, pictures, kind):
    plan = choose(model, kind)
    largest = ranges(model, plan.activations, [{"x": pictures}])
    made = quantise(model, plan, largest, kind)
    stored = {each.name: numpy_helper.to_array(each) for each in made.graph.initializer}
    original = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    for layer, name, shape in (("c1", "w1", (-1, 1, 1, 1)), ("hidden", "w3", (1, -1))):
        scale = stored[f"{layer}/weight/scale"].reshape(shape)
        steps = stored[f"{layer}/weight/q"].astype(np.float32)
        # INT8 steps are 1 apart; FP8 has 3 bits behind the first: 1/16 of a value, and 2^-10 near zero.
        allowed = 0.5 if kind == "int8" else np.maximum(np.abs(steps) / 16, 2**-10)
        assert (np.abs(original[name] / scale - steps) <= allowed * 1.001).all()
        assert np.abs(steps).max() <= LARGEST[kind]
    for name, value in largest.items():
        # Rounded up to FP16: the largest value is not cut off, and no more than that is lost.
        assert value <= stored[f"{name}/scale"] * LARGEST[kind] <= value * (1 + 2**-10)


@pytest.mark.parametrize(
    ("kind", "limit"), [pytest.param("int8", 0.02, marks=rounds_where_told), ("fp8", 0.06)]
)
def test_the_answers_are_near(model, pictures, kind, limit):
    plan = choose(model, kind)
    made = quantise(model, plan, ranges(model, plan.activations, [{"x": pictures}]), kind)
    halves = to_fp16(made, keep=["x", "y"])
    (expected,) = run(model, {"x": pictures})
    for each in (made, halves, rounded(halves)):
        (found,) = run(each, {"x": pictures})
        error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
        assert 1e-4 < error < limit


def test_a_channel_of_zeros_has_a_positive_scale(model, pictures):
    dead = onnx.ModelProto()
    dead.CopyFrom(model)
    values = numpy_helper.to_array(dead.graph.initializer[0]).copy()
    values[5] = 0
    dead.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, "w1"))
    plan = choose(dead, "int8")
    made = to_fp16(
        quantise(dead, plan, ranges(dead, plan.activations, [{"x": pictures}]), "int8"), keep=["y"]
    )
    scale = next(each for each in made.graph.initializer if each.name == "c1/weight/scale")
    assert (numpy_helper.to_array(scale) > 0).all()
