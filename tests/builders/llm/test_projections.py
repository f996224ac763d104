"""Joined projections: the same values from fewer products, and what is left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.builders.scripts import importable

openvino = pytest.importorskip("openvino")
pytestmark = pytest.mark.build

with importable():
    from steps.llm.groups import GROUP, compress_groups
    from steps.llm.projections import join_projections

ROWS = 256, 128, 192
LENGTH = 4 * GROUP
RNG = np.random.default_rng(0)
VALUES = RNG.standard_normal((5, LENGTH)).astype(np.float32)


def _of_4_bits(rows: int) -> Any:
    steps = RNG.uniform(0.01, 0.1, (rows, 4, 1)).astype(np.float16)
    matrix = (RNG.integers(0, 16, (rows, 4, GROUP)) - 7) * steps
    return matrix.reshape(rows, LENGTH).astype(np.float32)


def _of_floats(rows: int) -> Any:
    return RNG.standard_normal((rows, LENGTH)).astype(np.float32)


def _model(matrices: list[Any], biases: list[Any] | None = None) -> Any:
    """Each matrix times one input, [-1, 128], and what is added to it: outputs in order."""
    from openvino import Model, Type, opset13

    values = opset13.parameter([-1, LENGTH], Type.f32)
    ends = [opset13.matmul(values, opset13.constant(matrix), False, True) for matrix in matrices]
    for n, bias in enumerate(biases or []):
        ends[n] = opset13.add(ends[n], opset13.constant(bias))
    return Model([opset13.relu(end) for end in ends], [values], "projections")


def _outputs(model: Any) -> list[Any]:
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return list(compiled([VALUES]).values())


def _kinds(model: Any) -> list[str]:
    return [node.get_type_name() for node in model.get_ordered_ops()]


def _compress(model: Any, how: str) -> Any:
    import nncf

    if how in ("groups of 8 bits", "groups of 4 bits"):
        compress_groups(model)
    elif how == "rows of 8 bits":
        return nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_ASYM)
    elif how != "floats":
        mode = nncf.CompressWeightsMode.INT4_SYM
        return nncf.compress_weights(model, mode=mode, group_size=GROUP, ratio=1.0, all_layers=True)
    return model


@pytest.mark.parametrize("biased", [False, True], ids=["plain", "with biases"])
@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("floats", "f32"),
        ("rows of 8 bits", "u8"),
        ("groups of 8 bits", "i8"),
        ("groups of 4 bits", "u4"),
        ("nncf's 4 bits", "i4"),
    ],
)
def test_three_products_of_one_input_are_one(how: str, kind: str, biased: bool) -> None:
    make = _of_4_bits if how == "groups of 4 bits" else _of_floats
    biases = [_of_floats(rows)[None, :, 0] for rows in ROWS] if biased else None
    model = _compress(_model([make(rows) for rows in ROWS], biases), how)
    before = _outputs(model)
    assert join_projections(model) == 2
    kinds = _kinds(model)
    assert (kinds.count("MatMul"), kinds.count("Add")) == (1, biased)
    matrices = [node for node in model.get_ordered_ops() if node.get_type_name() == "Constant"]
    types = [node.get_element_type().get_type_name() for node in matrices if node.data.size > 10_000]
    assert types == [kind]
    for was, now in zip(before, _outputs(model), strict=True):
        np.testing.assert_allclose(now, was, rtol=1e-4, atol=1e-4)


def test_what_is_compressed_otherwise_stays() -> None:
    """As of a GGUF file of mixed kinds, whose values have more bits than queries and keys."""
    model = _model([_of_4_bits(256), _of_4_bits(128), _of_floats(192)])
    compress_groups(model)
    before = _outputs(model)
    assert join_projections(model) == 0
    assert _kinds(model).count("MatMul") == 3
    for was, now in zip(before, _outputs(model), strict=True):
        np.testing.assert_array_equal(now, was)


def test_a_bias_of_one_alone_is_added_after_the_split() -> None:
    model = _model([_of_floats(rows) for rows in ROWS], [_of_floats(ROWS[0])[None, :, 0]])
    before = _outputs(model)
    assert join_projections(model) == 2
    assert _kinds(model).count("MatMul") == 1
    for was, now in zip(before, _outputs(model), strict=True):
        np.testing.assert_allclose(now, was, rtol=1e-4, atol=1e-4)


def test_products_of_different_inputs_stay() -> None:
    from openvino import Model, opset13

    model = _model([_of_floats(LENGTH), _of_floats(64)])
    values = model.get_parameters()[0]
    first = opset13.relu(opset13.matmul(values, opset13.constant(_of_floats(LENGTH)), False, True))
    second = opset13.matmul(first, opset13.constant(_of_floats(64)), False, True)
    assert join_projections(Model([second], [values], "chain")) == 0


def test_what_is_multiplied_by_no_matrix_stays() -> None:
    """As queries by keys where attention is written out: there are as many as tokens."""
    from openvino import Model, Type, opset13

    queries = opset13.parameter([1, -1, LENGTH], Type.f32)
    keys = opset13.parameter([1, -1, LENGTH], Type.f32)
    scores = [opset13.matmul(queries, keys, False, True) for _ in range(2)]
    model = Model([opset13.relu(each) for each in scores], [queries, keys], "attention")
    assert join_projections(model) == 0
