"""Small ONNX graphs for the tests of what is made of graphs, and a run of one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from trimodal.manifest import Manifest, write_manifest

Arrays = Mapping[str, np.ndarray]
rounds_where_told = pytest.mark.skipif(
    tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 24),
    reason="the last onnxruntime for Python 3.10 builds other graphs: docs/limitations.md",
)


def graph(
    nodes: Sequence[NodeProto],
    *,
    inputs: Mapping[str, tuple[int, Sequence[int | str] | None]],
    outputs: Mapping[str, tuple[int, Sequence[int | str] | None]],
    weights: Arrays | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    """A model; inputs and outputs: name → (type, shape)."""
    made = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def node(operator: str, inputs: Sequence[str], output: str, **attributes: object) -> NodeProto:
    """A node that has its output's name."""
    return helper.make_node(operator, list(inputs), [output], output, **attributes)


def layer(width: int = 32, depth: int = 2, seed: int = 0) -> onnx.ModelProto:
    """`x` float32 [batch, width] → `y`: products with square weights and ReLUs between them."""
    generator = np.random.default_rng(seed)
    nodes, weights, tensor = [], {}, "x"
    for index in range(depth):
        weights[f"w{index}"] = generator.normal(0, width**-0.5, (width, width)).astype(np.float32)
        nodes.append(node("MatMul", [tensor, f"w{index}"], f"product{index}"))
        tensor = "y" if index == depth - 1 else f"relu{index}"
        nodes.append(node("Relu", [f"product{index}"], tensor))
    shape = (TensorProto.FLOAT, ["batch", width])
    return graph(nodes, inputs={"x": shape}, outputs={"y": shape}, weights=weights)


def run(model: onnx.ModelProto, inputs: Arrays) -> list[np.ndarray]:
    """What ONNX Runtime gives on the CPU, Q/DQ as they stand."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, dict(inputs)))


def types(model: onnx.ModelProto) -> dict[str, int]:
    """Element type of every tensor whose type can be inferred."""
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, check_type=True).graph
    found = {weight.name: weight.data_type for weight in inferred.initializer}
    values = (*inferred.input, *inferred.value_info, *inferred.output)
    return found | {value.name: value.type.tensor_type.elem_type for value in values}


SIDE = 8
CLASSES = 4


def write_classifier(path: Path, side: int = SIDE) -> Path:
    """pixels uint8[batch, 3, side, side] → logits float32[batch, 4], a linear layer."""
    weights = np.random.default_rng(0).normal(size=(3 * side * side, CLASSES)).astype(np.float32) / side
    model = graph(
        [
            node("Cast", ["pixels"], "floats", to=TensorProto.FLOAT),
            node("Div", ["floats", "most"], "scaled"),
            node("Flatten", ["scaled"], "flat"),
            node("MatMul", ["flat", "weights"], "logits"),
        ],
        inputs={"pixels": (TensorProto.UINT8, ["batch", 3, side, side])},
        outputs={"logits": (TensorProto.FLOAT, ["batch", CLASSES])},
        weights={"weights": weights, "most": np.array(255, np.float32)},
    )
    onnx.save(model, path)
    return path


def write_artefact(directory: Path, precision: str = "fp16", side: int = SIDE) -> Path:
    """What build/vision_onnx.py leaves, around the graph above."""
    directory.mkdir(parents=True)
    write_classifier(directory / "model.onnx", side)
    (directory / "labels.json").write_text(json.dumps([f"class {index}" for index in range(CLASSES)]))
    write_manifest(
        directory,
        Manifest(
            task="vision",
            runtime="onnxruntime",
            runtime_version="1.0",
            precision=precision,
            source="tiny",
            source_sha256="0" * 64,
            command="python build/vision_onnx.py tiny",
            shapes={"pixels": [-1, 3, side, side], "classes": CLASSES},
            check={"top1_agreement": 1.0},
            extra={
                "architecture": "linear",
                "pixels": "uint8",
                "input": {"height": side, "width": side, "resize": "exact"},
            },
        ),
    )
    return directory
