"""Converts an FP32 ONNX graph to FP16 inside, for TensorRT and for ONNX Runtime on CUDA.

Named inputs and outputs stay FP32, and so does what is between named nodes. What FP16 costs is found by
`rounding.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper, shape_inference

from trimodal.errors import ArtefactError

LARGEST = float(np.finfo(np.float16).max)
# Weights above this many bytes are left out while shapes are inferred: a message may not pass 2 GB.
LARGE = 1 << 16


def to_fp16(
    model: onnx.ModelProto, *, keep: Collection[str], keep_nodes: Collection[str] = ()
) -> onnx.ModelProto:
    """A copy of `model` with FP16 weights and FP16 between its nodes; `model` itself is not changed.

    Args:
        model: any size; weights that lie in files of their own must be loaded.
        keep: graph inputs and outputs that stay FP32. All others of type FP32 become FP16.
        keep_nodes: names of nodes that compute in FP32, with no rounding between neighbours of them.

    Raises:
        ArtefactError: a weight is too large for FP16, or the result would mix types in one node.
    """
    from onnxruntime.transformers.float16 import convert_float_to_float16
    from onnxruntime.transformers.onnx_model import OnnxModel

    for weight in model.graph.initializer:
        _fits(weight)
    converted: onnx.ModelProto = convert_float_to_float16(
        infer_shapes(model),
        keep_io_types=list(keep),
        disable_shape_infer=True,
        node_block_list=list(keep_nodes),
    )
    _join_casts(converted.graph)
    OnnxModel.graph_topological_sort(converted.graph)  # The converter puts its casts at the end.
    del converted.graph.value_info[:]
    try:
        infer_shapes(converted, strict=True)
    except shape_inference.InferenceError as error:
        raise ArtefactError(f"the FP16 graph would not be valid: {error}") from None
    return converted


def infer_shapes(model: onnx.ModelProto, *, strict: bool = False) -> onnx.ModelProto:
    """A copy of `model`, of any size, with types and shapes of all tensors that can be known.

    Raises:
        onnx.shape_inference.InferenceError: `strict`, and types or shapes contradict each other.
    """
    with _without_large(model) as weights:
        copy = shape_inference.infer_shapes(model, check_type=strict, strict_mode=strict)
    for index, data in weights.items():
        _fill(copy.graph.initializer[index], data)
    return copy


@contextmanager
def _without_large(model: onnx.ModelProto) -> Iterator[dict[int, bytes]]:
    """Takes the bytes of large weights out of `model` for a while: index of the initializer → its bytes."""
    taken: dict[int, bytes] = {}
    for index, weight in enumerate(model.graph.initializer):
        if len(weight.raw_data) > LARGE:
            taken[index] = weight.raw_data
            weight.ClearField("raw_data")
            weight.data_location = TensorProto.EXTERNAL
            weight.external_data.add(key="location", value="elsewhere")
    try:
        yield taken
    finally:
        for index, data in taken.items():
            _fill(model.graph.initializer[index], data)


def _fill(weight: TensorProto, data: bytes) -> None:
    weight.ClearField("data_location")
    weight.ClearField("external_data")
    weight.raw_data = data


def _fits(weight: TensorProto) -> None:
    """Single numbers may be too large: masks are, and the converter makes them the largest of FP16."""
    if weight.data_type == TensorProto.FLOAT and (values := numpy_helper.to_array(weight)).size > 1:
        largest = float(np.abs(values).max())
        if LARGEST < largest < np.inf:
            raise ArtefactError(f"weight {weight.name} reaches {largest:.3g}: FP16 ends at {LARGEST:.0f}")


def _join_casts(graph: onnx.GraphProto) -> None:
    """Drops the converter's pairs of casts, down to FP16 and up again: between kept nodes, and between a kept
    node and a kept input or output."""
    down = {
        node.output[0]: node.input[0]
        for node in graph.node
        if node.name.endswith("_cast_to_fp16_node") or node.name.startswith("graph_input_cast")
    }
    up = {
        node.output[0]: down[node.input[0]]
        for node in graph.node
        if node.name.endswith("_cast_to_fp32_node") or node.name.startswith("graph_output_cast")
        if node.input[0] in down
    }
    # An output keeps its name: what was to be cast to it takes that name instead.
    outputs = {up[value.name]: value.name for value in graph.output if value.name in up}
    _drop(graph, {*up})
    for node in graph.node:
        for index, name in enumerate(node.input):
            name = up.get(name, name)
            node.input[index] = outputs.get(name, name)
        for index, name in enumerate(node.output):
            node.output[index] = outputs.get(name, name)
    used = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    _drop(graph, {*down} - used)


def _drop(graph: onnx.GraphProto, outputs: set[str]) -> None:
    for node in [node for node in graph.node if node.output and node.output[0] in outputs]:
        graph.node.remove(node)
