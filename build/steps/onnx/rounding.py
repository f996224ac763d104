"""Makes an FP16 ONNX graph compute on a CPU what a GPU computes: FP32, every tensor rounded to FP16.

ONNX Runtime has few FP16 kernels for x86: it runs an FP16 graph in FP32 throughout and drops the roundings
between the nodes. Errors and overflows of FP16 would stay unseen until the graph meets a GPU. The graph made
here shows them: sums inside of a node are FP32 (as on tensor cores), what leaves a node is FP16.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, TensorProto, helper, numpy_helper
from steps.onnx.fp16 import infer_shapes

from trimodal.errors import ArtefactError

# They hand values on, or choose among them: there is nothing to round.
EXACT = {
    "Constant", "ConstantOfShape", "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND",
    "Identity", "Max", "MaxPool", "Min", "Neg", "Pad", "Relu", "Reshape", "Slice", "Split", "Squeeze", "Tile",
    "Transpose", "Unsqueeze", "Where",
}  # fmt: skip


def rounded(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of `model` (any size) in FP32, with FP16 where `model` has it only between pairs of casts.

    Inputs and outputs that are FP16 in `model` are FP32 here, and an FP16 value fits in.

    Raises:
        ArtefactError: the graph has graphs in its nodes (If, Loop), which this does not follow.
    """
    typed = infer_shapes(model, strict=True)
    graph = typed.graph
    halves = {
        value.name
        for value in (*graph.input, *graph.value_info, *graph.output)
        if value.type.tensor_type.elem_type == TensorProto.FLOAT16
    }
    halves |= {weight.name for weight in graph.initializer if weight.data_type == TensorProto.FLOAT16}
    for weight in graph.initializer:
        _widen(weight)
    nodes = [new for node in graph.node for new in _rounding(node, halves)]
    del graph.node[:]
    graph.node.extend(nodes)
    for value in (*graph.input, *graph.output):
        if value.name in halves:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    del graph.value_info[:]
    return typed


def _rounding(node: NodeProto, halves: set[str]) -> Iterator[NodeProto]:
    """`node` in FP32, and the casts that round what it gives."""
    for attribute in node.attribute:
        if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
            raise ArtefactError(f"FP16 cannot be checked: {node.op_type} ({node.name}) has graphs of its own")
        if attribute.type == AttributeProto.TENSOR:
            _widen(attribute.t)
    results = [name for name in node.output if name in halves]
    if node.op_type in EXACT or not results:
        yield node
        return
    to_half = [attribute for attribute in node.attribute if attribute.name == "to"]
    if node.op_type == "Cast" and to_half:
        to_half[0].i = TensorProto.FLOAT  # The pair that follows rounds.
    for index, name in enumerate(node.output):
        if name in halves:
            node.output[index] = f"{name}/exact"
    yield node
    for name in results:
        yield helper.make_node("Cast", [f"{name}/exact"], [f"{name}/half"], to=TensorProto.FLOAT16)
        yield helper.make_node("Cast", [f"{name}/half"], [name], to=TensorProto.FLOAT)


def _widen(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT16:
        wide = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))
