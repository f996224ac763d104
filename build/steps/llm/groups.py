"""Compresses weights to INT8 with a scale for each few of them, finer than nncf's, which has one a row."""

from __future__ import annotations

from typing import Any

import numpy as np

GROUP = 32
"""As many weights as a group of a GGUF file's formats has."""
_LEVELS = 15  # between the least and the largest weight of a group of 4 bits
_LEAST = 1 << 14  # weights of a matrix that is worth compressing


def compress_groups(model: Any, size: int = GROUP) -> int:
    """Replaces the matrices that MatMul and Gather read by INT8 and FP16 scales; tells how many it did.

    Matrices whose rows are not whole groups, or short, stay as they are.
    """
    found = 0
    for node in model.get_ordered_ops():
        if node.get_type_name() != "Constant" or len(node.get_output_shape(0)) != 2:
            continue
        rows, length = node.get_output_shape(0)
        readers = _readers(node)
        weights = {"MatMul", "Gather"} & {port.get_node().get_type_name() for port in readers}
        if weights and rows * length >= _LEAST and length % size == 0:
            compressed = _compressed(np.asarray(node.data, np.float32), size)
            for port in readers:
                port.replace_source_output(compressed)
            found += 1
    model.validate_nodes_and_infer_types()
    return found


def _readers(node: Any) -> list[Any]:
    """The inputs that take a constant, directly or converted."""
    ports = list(node.output(0).get_target_inputs())
    converts = [port.get_node() for port in ports if port.get_node().get_type_name() == "Convert"]
    if converts:
        return [port for each in converts for port in _readers(each)]
    return ports


def _compressed(weights: Any, size: int) -> Any:
    """The output of a graph that gives the weights back, in FP32."""
    from openvino import Type, opset13

    shape = np.array(weights.shape, np.int64)
    groups = weights.reshape(len(weights), -1, size)
    scales = _scales(groups).astype(np.float16)
    scales[scales == 0] = 1
    integers = np.clip(np.round(groups / scales.astype(np.float32)), -127, 127).astype(np.int8)
    graph = opset13.convert(opset13.constant(integers), Type.f16)
    graph = opset13.multiply(graph, opset13.constant(scales))
    graph = opset13.reshape(graph, opset13.constant(shape), special_zero=False)
    return opset13.convert(graph, Type.f32).output(0)


def _scales(groups: Any) -> Any:
    """A scale for each group, of the largest weight or, where 4 bits made them, of which their steps are a
    multiple and their least weight nearly is: then hardly anything is lost."""
    low, high = groups.min(2, keepdims=True), groups.max(2, keepdims=True)
    largest = np.maximum(high, -low)
    scales, steps = largest / 127, np.maximum(high - low, np.finfo(np.float32).tiny) / _LEVELS
    levels = (groups - low) / steps
    on_grid = np.abs(levels - np.round(levels)).max(2, keepdims=True) < 0.05
    least = np.full_like(scales, np.inf)
    for parts in range(4, 17):
        finer = steps / parts
        error = np.abs(low - np.round(low / finer) * finer)
        better = on_grid & (largest <= 127 * finer) & (error < least)
        scales, least = np.where(better, finer, scales), np.where(better, error, least)
    return scales
