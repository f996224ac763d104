"""Exports a sentence embedder as an FP32 ONNX graph, token ids to unit vectors; names the nodes that pool."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import onnx
import torch

INPUTS = ("input_ids", "attention_mask")
OUTPUT = "sentence_embedding"


def export(model: torch.nn.Module) -> onnx.ModelProto:
    """Inputs int64 [batch, length] → `sentence_embedding` float32 [batch, d]; batch and length free."""
    example = torch.ones(2, 7, dtype=torch.int64)
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # The TorchScript exporter announces its successor; it is quicker.
        torch.onnx.export(
            model,
            (example, example),
            file := str(Path(folder, "model.onnx")),
            input_names=list(INPUTS),
            output_names=[OUTPUT],
            dynamic_axes={name: {0: "batch", 1: "length"} for name in INPUTS} | {OUTPUT: {0: "batch"}},
            opset_version=17,
            dynamo=False,
        )
        return onnx.load(file)


def pooling(model: onnx.ModelProto) -> list[str]:
    """Names of the nodes behind the encoder, and of those that only they use: sums over a whole text.

    They are few, and cheap: in FP32 their sums and tiny bounds (1e-12) stay what they are.
    """
    graph = model.graph
    last = [node for node in graph.node if node.op_type == "LayerNormalization"][-1]
    reached, chosen = {last.output[0]}, set()
    for node in graph.node:  # in the order of computation
        if reached & set(node.input):
            reached |= set(node.output)
            chosen.add(node.name)
    users: dict[str, set[str]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, set()).add(node.name)
    for node in reversed(graph.node):
        used_by = {user for name in node.output for user in users.get(name, set())}
        if used_by and used_by <= chosen and node is not last:
            chosen.add(node.name)
    return [node.name for node in graph.node if node.name in chosen and node.name != last.name]
