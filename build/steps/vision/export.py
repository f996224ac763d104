"""Exports a classifier as an FP32 ONNX graph that takes bytes: `pixels` uint8 [batch, 3, H, W] → `logits`.

From a torch model, or from an ONNX graph of normalised pixels. Precisions are made of it in `vision_onnx.py`.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import onnx
from onnx import TensorProto, compose, helper, numpy_helper
from steps.vision.models import FromBytes, Model, normalisation

from trimodal.vision.artefact import InputSpec

INPUT, OUTPUT = "pixels", "logits"
OPSET = 17


def from_torch(model: Model, spec: InputSpec, opset: int = OPSET) -> onnx.ModelProto:
    """The graph of a model of normalised pixels, behind the normalisation."""
    import torch

    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        # The TorchScript exporter announces its successor; it is 10 times quicker.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            FromBytes(model, spec).eval(),
            (torch.zeros(1, 3, spec.height, spec.width, dtype=torch.uint8),),
            file := str(Path(folder, "model.onnx")),
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_axes={INPUT: {0: "batch"}, OUTPUT: {0: "batch"}},
            opset_version=opset,
            dynamo=False,
        )
        return onnx.load(file)


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
