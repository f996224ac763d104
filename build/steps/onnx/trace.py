"""Exports torch modules as ONNX graphs."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import onnx
import torch


def trace(
    module: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    names: tuple[Sequence[str], Sequence[str]],
    axes: dict[str, dict[int, str]],
    opset: int,
    scratch: Path | None = None,
) -> onnx.ModelProto:
    """The graph that torch's TorchScript exporter makes: it is 10 times quicker than its successor.

    Args:
        names: of inputs and of outputs.
        axes: free ones, by tensor.
        scratch: folder with room for the graph; the system's own if not told.
    """
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(dir=scratch) as folder:
        warnings.simplefilter("ignore")  # It announces its successor.
        path = str(Path(folder, "model.onnx"))
        given, made = map(list, names)
        torch.onnx.export(
            module, inputs, path, input_names=given, output_names=made, dynamic_axes=axes,
            opset_version=opset, dynamo=False,
        )  # fmt: skip
        return onnx.load(path)
