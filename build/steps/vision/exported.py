"""Reads a classifier that its owner exported: `model.onnx` with `config.json` beside it.

One input float32 [batch, 3, H, W] of normalised pixels, one output float32 [batch, classes] of logits, batch
free, FP32, opset 13 to 20. Beside it, `reference.npz` (`pixels` uint8 [N, 3, H, W], `logits` float32
[N, classes] that torch gave) lets the build check itself against torch.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from steps.vision.classifier import CONFIG, GRAPH, name_classes, read_own_config

from trimodal.errors import ArtefactError
from trimodal.vision.artefact import InputSpec
from trimodal.vision.engines.protocol import Logits

# What torch answered: pixels uint8[N, 3, H, W] and logits float32[N, C].
Reference = tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]
OPSETS = range(13, 21)


def read_graph(directory: Path) -> tuple[onnx.ModelProto, InputSpec, list[str], Reference | None]:
    """The graph, its contract checked, its input and labels, and what torch answered where that is told.

    Raises:
        ArtefactError: a file is missing or damaged, or not as the contract says.
    """
    file, config = directory / GRAPH, read_own_config(directory)
    spec = config.input
    if spec is None:
        raise ArtefactError(
            f"{directory / CONFIG} lacks input, which says how a picture becomes {GRAPH}'s pixels: "
            '{"input": {"height": 224, "width": 224, "resize_to": 256, "mean": […], "std": […]}, '
            '"labels": […]}'
        )
    try:
        model = onnx.load(file)
        onnx.checker.check_model(file, full_check=True)
    except Exception as error:  # protobuf, onnx and the file system raise errors of their own.
        raise ArtefactError(f"{file} is not a valid ONNX model: {str(error).splitlines()[0]}") from None
    (opset,) = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")] or [0]
    if opset not in OPSETS:
        age = "old" if opset < OPSETS[0] else "new"
        raise ArtefactError(
            f"{file} is of opset {opset}, too {age} for its precisions to be made of it: "
            f"export it again with opset_version=17 ({OPSETS[0]} to {OPSETS[-1]} are read)"
        )
    _only(file, "input", list(model.graph.input), ["free", 3, spec.height, spec.width])
    classes = int(_only(file, "output", list(model.graph.output), ["free", config.num_classes])[1])
    labels = name_classes(config.labels, classes, directory / CONFIG)
    reference = directory / "reference.npz"
    told = _read_reference(reference, spec, classes) if reference.is_file() else None
    return model, spec, labels, told


def refuse_probabilities(file: Path, logits: Logits) -> None:
    """Raises: ArtefactError: each row is a distribution: the graph ends in Softmax."""
    if (logits >= 0).all() and np.allclose(logits.sum(1), 1, atol=1e-3):
        raise ArtefactError(
            f"{file} gives probabilities, so it ends in Softmax, and serving would apply it a second time: "
            "export the logits, without the last Softmax"
        )


def _only(
    file: Path, what: str, values: list[onnx.ValueInfoProto], wanted: list[str | int | None]
) -> list[str | int]:
    """The shape of the only input or output. Raises: ArtefactError: several, or of another type or shape."""
    if len(values) != 1:
        raise ArtefactError(f"{file} has {len(values)} {what}s, one is wanted: export the classifier alone")
    tensor = values[0].type.tensor_type
    kind = str(onnx.TensorProto.DataType.Name(tensor.elem_type)).lower()
    found = [dim.dim_value if dim.HasField("dim_value") else "free" for dim in tensor.shape.dim]
    if kind == "float" and len(found) == len(wanted) and isinstance(found[0], int):
        raise ArtefactError(
            f"{file}: the batch of its {what} is fixed at {found[0]}: export it with a free one "
            f'(dynamic_axes={{"{values[0].name}": {{0: "batch"}}}})'
        )
    fits = len(found) == len(wanted) and all(
        a == b or (b is None and isinstance(a, int)) for a, b in zip(found, wanted, strict=True)
    )
    if kind != "float" or not fits:
        shape = [part if part is not None else "classes" for part in wanted]
        raise ArtefactError(f"{file}: {what} must be float {shape}, not {kind} {found}")
    return found


def _read_reference(file: Path, spec: InputSpec, classes: int) -> Reference:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            pixels, logits = arrays["pixels"], arrays["logits"]
    except Exception as error:  # zipfile, numpy and KeyError, depending on what is wrong.
        raise ArtefactError(f"{file} lacks 'pixels' or 'logits' ({type(error).__name__})") from None
    shape = (len(pixels), 3, spec.height, spec.width)
    if pixels.dtype != np.uint8 or pixels.shape != shape or logits.shape != (len(pixels), classes):
        raise ArtefactError(
            f"{file}: 'pixels' must be uint8 {list(shape)}, 'logits' one row of {classes} for each"
        )
    return pixels, logits.astype(np.float32)
