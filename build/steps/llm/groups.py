"""Compresses weights with a scale for each few of them, finer than nncf's INT8, which has one a row.

What 4 bits made, as in most GGUF files, keeps its 4 bits and its own least weight and step: nothing is lost,
and a step of decoding reads half as many bytes as INT8. The rest is INT8.
"""

from __future__ import annotations

from typing import Any

import numpy as np

GROUP = 32
"""As many weights as a group of a GGUF file's formats has."""
_STEPS = 15  # between the least and the largest weight of a group of 4 bits, at most
_NEAR = 0.02  # of a step: what is on a grid is as near to it, as FP16 rounds
_FEWEST = 16  # weights of a group that tell: any two lie on a grid
_FARTHEST = 256  # steps from the least weight to zero, as FP16 still holds a hundredth of a step well
_LEAST = 1 << 14  # weights of a matrix that is worth compressing


def compress_groups(model: Any, size: int = GROUP) -> tuple[int, int]:
    """Replaces the matrices that MatMul and Gather read; tells how many became INT8, and stayed 4 bits.

    Matrices whose rows are not whole groups, or short, stay as they are.
    """
    found = [0, 0]
    for node in model.get_ordered_ops():
        if node.get_type_name() != "Constant" or len(node.get_output_shape(0)) != 2:
            continue
        rows, length = node.get_output_shape(0)
        readers = _readers(node)
        weights = {"MatMul", "Gather"} & {port.get_node().get_type_name() for port in readers}
        if weights and rows * length >= _LEAST and length % size == 0:
            groups = np.asarray(node.data, np.float32).reshape(rows, -1, size)
            # A table of 4 bits would be unpacked whole for Gather.
            grid = _grid(groups) if weights == {"MatMul"} else None
            compressed = _of_8_bits(groups) if grid is None else _of_4_bits(*grid)
            for port in readers:
                port.replace_source_output(_whole(compressed, (rows, length)))
            found[grid is not None] += 1
    model.validate_nodes_and_infer_types()
    return found[0], found[1]


def _readers(node: Any) -> list[Any]:
    """The inputs that take a constant, directly or converted."""
    ports = list(node.output(0).get_target_inputs())
    converts = [port.get_node() for port in ports if port.get_node().get_type_name() == "Convert"]
    if converts:
        return [port for each in converts for port in _readers(each)]
    return ports


def _grid(groups: Any) -> tuple[Any, Any, Any] | None:
    """Levels from 0 to 15, steps, and the level of zero, of groups that 4 bits made; None: others did."""
    if groups.shape[2] < _FEWEST:
        return None
    low, high = groups.min(2, keepdims=True), groups.max(2, keepdims=True)
    steps = np.zeros_like(low)
    for count in range(1, _STEPS + 1):
        step = np.where(high > low, high - low, 1) / count
        levels = (groups - low) / step
        on_grid = np.abs(levels - np.round(levels)).max(2, keepdims=True) < _NEAR
        steps = np.where((steps == 0) & on_grid, step, steps)
    if (steps < np.finfo(np.float16).tiny).any() or (np.abs(low) > _FARTHEST * steps).any():
        return None
    return np.round((groups - low) / steps).astype(np.uint8), steps, -low / steps


def _of_4_bits(levels: Any, steps: Any, zeros: Any) -> Any:
    """A graph that gives the groups back: the level of zero is no whole number, so it is FP16."""
    from openvino import Shape, Tensor, Type, op, opset13

    flat = levels.reshape(-1)
    packed = Tensor(flat[0::2] | flat[1::2] << 4, Shape(list(levels.shape)), Type.u4)
    graph = opset13.convert(op.Constant(packed, shared_memory=False), Type.f16)
    graph = opset13.subtract(graph, opset13.constant(zeros.astype(np.float16)))
    return opset13.multiply(graph, opset13.constant(steps.astype(np.float16)))


def _of_8_bits(groups: Any) -> Any:
    """A graph that gives the groups back, each with the scale of its largest weight."""
    from openvino import Type, opset13

    scales = (np.abs(groups).max(2, keepdims=True) / 127).astype(np.float16)
    scales[scales == 0] = 1
    integers = np.clip(np.round(groups / scales.astype(np.float32)), -127, 127).astype(np.int8)
    graph = opset13.convert(opset13.constant(integers), Type.f16)
    return opset13.multiply(graph, opset13.constant(scales))


def _whole(graph: Any, shape: tuple[int, int]) -> Any:
    """The output that gives the matrix, in FP32."""
    from openvino import Type, opset13

    graph = opset13.reshape(graph, opset13.constant(np.array(shape, np.int64)), special_zero=False)
    return opset13.convert(graph, Type.f32).output(0)
