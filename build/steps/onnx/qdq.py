"""Puts INT8 or FP8 (E4M3) Q/DQ nodes into an FP32 ONNX graph, as TensorRT's explicit quantisation wants them.

What TensorRT asks for (its guide, "Working with Quantized Types"; onnx-tensorrt's importer): symmetric, zero
points 0, one scale for an activation, one for each output channel of a weight, biases left in floats, strong
typing. Which layers are worth it follows NVIDIA's Model Optimizer: no small or odd convolutions, no products
of two activations (attention keeps FP16), nothing but the branch that joins a convolution quantised before an
addition. The last layer keeps FP16: it gives the answer. ONNX Runtime on CPUs wants other graphs; see
`quantise` of `steps/vision/export.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

Kind = Literal["int8", "fp8"]
Array = npt.NDArray[np.float32]
OPSET = 19  # the first with FP8, and with FP16 scales
LARGEST: dict[Kind, float] = {"int8": 127.0, "fp8": 448.0}
TYPES: dict[Kind, int] = {"int8": TensorProto.INT8, "fp8": TensorProto.FLOAT8E4M3FN}
SMALLEST_SCALE = float(np.finfo(np.float16).smallest_subnormal)
FEWEST = 16  # channels that fill a tensor core's tile


@dataclass(frozen=True)
class QuantisedNodes:
    """What gets Q/DQ: node name → index of its weight and the axis of its output channels; and inputs of
    additions: node name → index."""

    weighted: Mapping[str, tuple[int, int]]
    joined: Mapping[str, int]
    activations: tuple[str, ...]


def choose(model: onnx.ModelProto, kind: Kind) -> QuantisedNodes:
    """Nodes of `model` that are worth quantising."""
    graph = model.graph
    weights = {weight.name: weight for weight in graph.initializer}
    weighted = {}
    for node in graph.node:
        if place := _weight(node, weights, kind):
            weighted[node.name] = place
    if weighted:
        weighted.popitem()  # the last
    convolved = {node.output[0] for node in graph.node if node.name in weighted and node.op_type == "Conv"}
    joined = {}
    for node in graph.node:
        if node.op_type == "Add" and not any(name in weights for name in node.input):
            # A convolution and what is added to its result become one kernel; that kernel reads 8 bits.
            own = [name in convolved for name in node.input]
            if any(own):
                joined[node.name] = own.index(False) if False in own else 1
    activations = [node.input[0] for node in graph.node if node.name in weighted]
    activations += [node.input[joined[node.name]] for node in graph.node if node.name in joined]
    return QuantisedNodes(weighted, joined, tuple(dict.fromkeys(activations)))


def ranges(
    model: onnx.ModelProto,
    tensors: Iterable[str],
    batches: Iterable[Mapping[str, npt.NDArray[np.generic]]],
    advance: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """The largest magnitude of each tensor over all batches, found with ONNX Runtime on the CPU."""
    import onnxruntime

    probed = onnx.ModelProto()
    probed.CopyFrom(model)
    names = list(tensors)
    del probed.graph.output[:]
    for index, name in enumerate(names):
        probed.graph.node.append(helper.make_node("Abs", [name], [f"probe{index}/abs"]))
        probed.graph.node.append(
            helper.make_node("ReduceMax", [f"probe{index}/abs"], [f"probe{index}"], keepdims=0)
        )
        probed.graph.output.append(helper.make_tensor_value_info(f"probe{index}", TensorProto.FLOAT, []))
    session = onnxruntime.InferenceSession(probed.SerializeToString(), providers=["CPUExecutionProvider"])
    found = np.zeros(len(names), np.float32)
    for batch in batches:
        found = np.maximum(found, np.array(session.run(None, dict(batch)), np.float32))
        advance()
    return dict(zip(names, map(float, found), strict=True))


def quantise(
    model: onnx.ModelProto, chosen: QuantisedNodes, largest: Mapping[str, float], kind: Kind
) -> onnx.ModelProto:
    """A copy of `model` (opset 19 or later) with Q/DQ; its scales are numbers that FP16 holds.

    Weights are stored in 8 bits behind a DequantizeLinear; activations pass through a pair of Q and DQ, which
    all layers that quantise the same tensor share.
    """
    from onnxruntime.transformers.onnx_model import OnnxModel

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    zero = {"int8": np.zeros((), np.int8), "fp8": np.zeros((), ml_dtypes.float8_e4m3fn)}[kind]
    graph.initializer.append(numpy_helper.from_array(zero, "qdq/zero"))
    pairs: dict[str, str] = {}
    nodes: list[NodeProto] = []
    for tensor in chosen.activations:
        scale = _scale(np.array(largest[tensor], np.float32), kind)
        graph.initializer.append(numpy_helper.from_array(scale, f"{tensor}/scale"))
        pairs[tensor] = f"{tensor}/dq"
        shared = [f"{tensor}/scale", "qdq/zero"]
        nodes.append(helper.make_node("QuantizeLinear", [tensor, *shared], [f"{tensor}/q"], f"{tensor}/q"))
        nodes.append(
            helper.make_node("DequantizeLinear", [f"{tensor}/q", *shared], [pairs[tensor]], pairs[tensor])
        )
    weights = {weight.name: weight for weight in graph.initializer}
    for node in graph.node:
        if node.name in chosen.joined:
            index = chosen.joined[node.name]
            node.input[index] = pairs[node.input[index]]
        if node.name in chosen.weighted:
            place, axis = chosen.weighted[node.name]
            name = f"{node.name}/weight"
            nodes.append(_quantised_weight(graph, weights[node.input[place]], name, axis, kind))
            node.input[0], node.input[place] = pairs[node.input[0]], name
    graph.node.extend(nodes)
    OnnxModel.graph_topological_sort(graph)
    used = {name for node in graph.node for name in node.input}
    for weight in [weight for weight in graph.initializer if weight.name not in used]:
        graph.initializer.remove(weight)
    return copy


def _quantised_weight(
    graph: onnx.GraphProto, weight: TensorProto, name: str, axis: int, kind: Kind
) -> NodeProto:
    values: Array = numpy_helper.to_array(weight)
    others = tuple(index for index in range(values.ndim) if index != axis)
    scale = _scale(np.abs(values).max(axis=others), kind)
    steps = values / scale.reshape([-1 if index == axis else 1 for index in range(values.ndim)])
    if kind == "int8":
        stored = np.clip(np.rint(steps), -LARGEST[kind], LARGEST[kind]).astype(np.int8)
    else:
        stored = np.clip(steps, -LARGEST[kind], LARGEST[kind]).astype(ml_dtypes.float8_e4m3fn)
    graph.initializer.append(numpy_helper.from_array(stored, f"{name}/q"))
    graph.initializer.append(numpy_helper.from_array(scale, f"{name}/scale"))
    zeros = numpy_helper.from_array(np.zeros(scale.shape, stored.dtype), f"{name}/zero")
    graph.initializer.append(zeros)
    inputs = [f"{name}/q", f"{name}/scale", zeros.name]
    return helper.make_node("DequantizeLinear", inputs, [name], name, axis=axis)


def _scale(largest: Array, kind: Kind) -> Array:
    """float32 scales that are FP16 numbers, rounded up: the largest value must not be cut off."""
    wanted = np.maximum(largest / LARGEST[kind], SMALLEST_SCALE)
    near = wanted.astype(np.float16)
    up = np.where(near < wanted, np.nextafter(near, np.float16(np.inf)), near)
    return np.asarray(up, np.float32)


def _weight(node: NodeProto, weights: Mapping[str, TensorProto], kind: Kind) -> tuple[int, int] | None:
    """Index of the weight and axis of its output channels; None where the node is not worth quantising."""
    if node.op_type not in ("Conv", "Gemm", "MatMul") or node.input[0] in weights:
        return None
    weight = weights.get(node.input[1])
    if weight is None or weight.data_type != TensorProto.FLOAT:
        return None
    shape = list(weight.dims)
    if node.op_type == "Conv":
        group = next((attribute.i for attribute in node.attribute if attribute.name == "group"), 1)
        return (1, 0) if _fits_convolution(shape, group, kind) else None
    if len(shape) != 2 or min(shape) < FEWEST:
        return None
    transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
    return 1, 0 if transposed else 1


def _fits_convolution(shape: list[int], group: int, kind: Kind) -> bool:
    """Model Optimizer's rules (find_nodes_from_convs_to_exclude): shape [out, in / group, height, width]."""
    out, inside, *kernel = shape
    if out >= FEWEST and inside >= FEWEST:
        return kind == "int8" or (int(np.prod(kernel)) <= 32 and min(out, inside) > FEWEST)
    if kind == "fp8":
        return False
    if group > 1:
        return out % 8 == 0 and min(kernel) >= 3
    return (out % 8 == 0 or inside % 8 == 0) and max(out, inside) >= FEWEST and len(set(kernel)) == 1
