"""Artefacts of tiny graphs over the ids of texts, with a tokenizer that knows a few words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from trimodal.manifest import Manifest, write_manifest

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c"]


def write_tokenizer(directory: Path, spoil: Callable[[Tokenizer], None]) -> None:
    """`spoil`: sets what some checkpoints have, and the engine must not keep."""
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    spoil(tokenizer)
    tokenizer.save(str(directory / "tokenizer.json"))


def write_model(
    directory: Path,
    inputs: Sequence[str],
    nodes: Sequence[tuple[str, list[str], str, dict[str, Any]]],
    output: list[str | int],
    floats: dict[str, float] | None = None,
) -> None:
    """A graph of (operator, inputs, output, attributes) on int64[b, l], whose last output is of FP32.

    Among the names are "one", int64[1], and those of `floats`, float32[1].
    """
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto
    made = [helper.make_node(name, taken, [given], **more) for name, taken, given, more in nodes]
    taken = [helper.make_tensor_value_info(name, kind.INT64, ["b", "l"]) for name in inputs]
    result = helper.make_tensor_value_info(nodes[-1][2], kind.FLOAT, output)
    constants = [helper.make_tensor("one", kind.INT64, [1], [1])]
    constants += [
        helper.make_tensor(name, kind.FLOAT, [1], [value]) for name, value in (floats or {}).items()
    ]
    graph = helper.make_graph(made, "tiny", taken, [result], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(directory / "model.onnx"))


def write_shapes(directory: Path, task: str, **shapes: int) -> Manifest:
    """The manifest, which states these sizes."""
    facts = {"runtime_version": "0", "precision": "fp32", "source": "test", "source_sha256": "none"}
    manifest = Manifest(task=task, runtime="onnxruntime", command="python x", shapes=shapes, **facts)
    write_manifest(directory, manifest)
    return manifest
