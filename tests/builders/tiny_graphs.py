"""ONNX graphs of a few nodes, and a classifier's artefact around one, for tests of plans."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from trimodal.manifest import Manifest, write_manifest

SIDE = 8
CLASSES = 4


def write_classifier(path: Path, side: int = SIDE) -> Path:
    """pixels uint8[batch, 3, side, side] → logits float32[batch, 4], a linear layer."""
    weights = np.random.default_rng(0).normal(size=(3 * side * side, CLASSES)).astype(np.float32) / side
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["pixels"], ["floats"], to=TensorProto.FLOAT),
            helper.make_node("Div", ["floats", "most"], ["scaled"]),
            helper.make_node("Flatten", ["scaled"], ["flat"]),
            helper.make_node("MatMul", ["flat", "weights"], ["logits"]),
        ],
        "classifier",
        [helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["batch", 3, side, side])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
        [
            numpy_helper.from_array(weights, "weights"),
            numpy_helper.from_array(np.array(255, np.float32), "most"),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
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
