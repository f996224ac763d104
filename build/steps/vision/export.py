"""Exports a classifier as an FP32 ONNX graph that takes bytes: `pixels` uint8 [batch, 3, H, W] → `logits`.

From a torch model, or from an ONNX graph of normalised pixels. INT8 for CPUs is made of it here, other
precisions in `vision_onnx.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, compose, helper, numpy_helper
from steps.onnx.trace import trace
from torch import Tensor, nn

from trimodal.build_support import progress
from trimodal.vision.artefact import InputSpec
from trimodal.vision.engines.protocol import Pixels

INPUT, OUTPUT = "pixels", "logits"
OPSET = 17
BATCH = 16


class FromBytes(nn.Module):
    """A network of normalised pixels behind the normalisation itself: what is exported takes uint8 pixels.

    (value / 255 − mean) / std is one multiplication and one addition a channel.
    """

    pixel_scale: Tensor
    pixel_offset: Tensor

    def __init__(self, network: nn.Module, spec: InputSpec) -> None:
        super().__init__()
        self.network = network
        scale, offset = normalisation(spec)
        self.register_buffer("pixel_scale", torch.from_numpy(scale))
        self.register_buffer("pixel_offset", torch.from_numpy(offset))

    def forward(self, pixels: Tensor) -> Tensor:
        """Logits [B, C] of pixels uint8 [B, 3, H, W]."""
        logits: Tensor = self.network(pixels.to(torch.float32) * self.pixel_scale + self.pixel_offset)
        return logits


def normalisation(spec: InputSpec) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Factor and addend float32[1, 3, 1, 1] that normalise a byte."""
    mean, std = (np.array(values, np.float64).reshape(1, 3, 1, 1) for values in (spec.mean, spec.std))
    return (1 / (255 * std)).astype(np.float32), (-mean / std).astype(np.float32)


def from_torch(network: nn.Module, spec: InputSpec, opset: int = OPSET) -> onnx.ModelProto:
    """The graph of a network of normalised pixels, behind the normalisation."""
    pixels = torch.zeros(1, 3, spec.height, spec.width, dtype=torch.uint8)
    axes = {INPUT: {0: "batch"}, OUTPUT: {0: "batch"}}
    return trace(FromBytes(network, spec).eval(), (pixels,), ([INPUT], [OUTPUT]), axes, opset)


def from_onnx(model: onnx.ModelProto, spec: InputSpec, opset: int = OPSET) -> onnx.ModelProto:
    """A graph of normalised pixels behind the same normalisation; of opset `opset`, or its own if later."""
    (own,) = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    if own < opset:
        model = onnx.version_converter.convert_version(model, opset)
    copy = compose.add_prefix(model, "model/")  # so that no name of it meets one of ours
    graph = copy.graph
    for index, node in enumerate(graph.node):
        node.name = f"model/{index}/{node.op_type}"  # Names are optional in ONNX; what follows needs them.
    inside, outside = graph.input[0].name, graph.output[0].name
    scale, offset = normalisation(spec)
    graph.initializer.append(numpy_helper.from_array(scale, "pixel_scale"))
    graph.initializer.append(numpy_helper.from_array(offset, "pixel_offset"))
    nodes = [
        helper.make_node("Cast", [INPUT], ["floats"], "normalise/cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["floats", "pixel_scale"], ["scaled"], "normalise/mul"),
        helper.make_node("Add", ["scaled", "pixel_offset"], [inside], "normalise/add"),
        *graph.node,
        helper.make_node("Identity", [outside], [OUTPUT], "logits/name"),
    ]
    del graph.node[:], graph.input[:], graph.output[:]
    graph.node.extend(nodes)
    shape: list[str | int | None] = ["batch", 3, spec.height, spec.width]
    graph.input.append(helper.make_tensor_value_info(INPUT, TensorProto.UINT8, shape))
    graph.output.append(helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", None]))
    return copy


def normalisation_nodes(model: onnx.ModelProto) -> list[str]:
    """Names of the nodes between `pixels` and the first layer: they stay in FP32, where nothing is lost."""
    users = {tensor: node for node in model.graph.node for tensor in node.input}
    names, node = [], users[INPUT]
    while node.op_type in ("Cast", "Mul", "Add"):
        names.append(node.name)
        node = users[node.output[0]]
    return names


def quantise(path: Path, pixels: Pixels, keep_float: int) -> None:
    """INT8 for CPUs in place of the FP32 graph in `path`: Q/DQ with zero points and quantised biases.

    Weights are quantised per channel, activations by the range that they reach on `pixels`. TensorRT wants
    another form; see `steps/onnx/qdq.py`.

    Args:
        keep_float: so many of the first layers with weights stay in floats, and the last one with them.
    """
    from onnxruntime import quantization as q
    from onnxruntime.quantization.shape_inference import quant_pre_process

    starts = range(0, len(pixels), BATCH)
    prepared = path.with_name("prepared.onnx")
    quant_pre_process(str(path), str(prepared), skip_symbolic_shape=True)
    graph = onnx.load(prepared)
    layers = [node.name for node in graph.graph.node if node.op_type in ("Conv", "Gemm", "MatMul")]
    floats = [*layers[:keep_float], layers[-1]] if keep_float else []
    with progress(f"int8: calibrate on {len(pixels)} images", len(starts)) as advance:

        def batches() -> Iterator[dict[str, Pixels]]:
            for start in starts:
                advance()
                yield {INPUT: pixels[start : start + BATCH]}

        q.quantize_static(
            str(prepared),
            str(path),
            SimpleNamespace(get_next=partial(next, batches(), None)),
            quant_format=q.QuantFormat.QDQ,
            per_channel=True,
            activation_type=q.QuantType.QUInt8,  # 3 times as fast as signed ones on x86
            weight_type=q.QuantType.QInt8,
            nodes_to_exclude=[*normalisation_nodes(graph), *floats],
        )
    prepared.unlink()
