"""Weights by groups: what the graph gives back, and what is left alone."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders.scripts import importable

openvino = pytest.importorskip("openvino")
pytestmark = pytest.mark.build

with importable():
    from steps.llm.groups import GROUP, compress_groups


@pytest.mark.parametrize("least", [-9.4, -8.0, 0.0], ids=["as Q4_1", "as Q4_0", "no weight below zero"])
def test_what_four_bits_made_stays_four_bits_and_loses_nothing(least: float) -> None:
    """As in a GGUF file: a step and a least weight for each 32."""
    from openvino import Type, opset13

    rng = np.random.default_rng(1)
    levels = rng.integers(0, 16, (256, 4, GROUP))
    levels[:, 0] = levels[:, 0] // 2  # the upper half of the levels is not used
    levels[0, 0] = 3  # all alike
    steps = rng.uniform(0.001, 0.1, (256, 4, 1)).astype(np.float16).astype(np.float32)
    matrix = ((levels + least) * steps).astype(np.float32).reshape(256, 128)
    eye = opset13.parameter([128, 128], Type.f32)
    product = opset13.matmul(eye, opset13.constant(matrix), False, True)
    model = openvino.Model([product], [eye], "one")
    assert compress_groups(model) == (0, 1)
    kinds = [node.get_element_type() for node in model.get_ops() if node.get_type_name() == "Constant"]
    assert kinds.count(Type.u4) == 1
    assert kinds.count(Type.f32) == 0
    got = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([np.eye(128)])
    lost = np.abs(got[0].T.reshape(256, 4, GROUP) - matrix.reshape(256, 4, GROUP)) / steps
    assert lost.max() < 0.01, "of a step"


def test_a_matrix_that_two_read_is_compressed_once_and_to_half_a_step_of_its_groups() -> None:
    from openvino import Type, opset13

    rng = np.random.default_rng(0)
    table = (rng.standard_normal((512, 96)) * rng.uniform(0.01, 1, (512, 96))).astype(np.float32)
    table[:, :GROUP] *= 50  # a scale a row would be of these
    table[0] = 0
    odd = rng.standard_normal((512, 72)).astype(np.float32)
    ids = opset13.parameter([-1], Type.i64)
    shared = opset13.constant(table)  # as embeddings that are the head's too
    rows = opset13.gather(shared, ids, opset13.constant(np.int64(0)))
    logits = opset13.matmul(rows, shared, False, True)
    others = opset13.matmul(opset13.parameter([1, 72], Type.f32), opset13.constant(odd), False, True)
    model = openvino.Model([rows, logits, others], [ids, others.input_value(0).get_node()], "two")
    assert compress_groups(model) == (1, 0)
    kinds = [node.get_element_type() for node in model.get_ops() if node.get_type_name() == "Constant"]
    assert kinds.count(Type.i8) == 1
    assert kinds.count(Type.f32) == 1, "72 are no whole groups"
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    got = compiled([np.arange(512), np.zeros((1, 72), np.float32)])
    largest = np.abs(table.reshape(512, -1, GROUP)).max(2)
    steps = np.repeat(largest, GROUP, axis=1) / 127
    assert (np.abs(got[0] - table) <= 0.51 * steps + 1e-3 * np.abs(table)).all()
    assert np.abs(got[1] - table @ table.T).max() < 0.02 * np.abs(table @ table.T).max()
