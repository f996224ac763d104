"""Reads the checkpoint of a torch classifier: `config.json` with `model.safetensors`, or with `model.onnx`.

`model.safetensors`: weights of an architecture of `models.py`, with torchvision's names; or a ResNet-18 or
-50 of the Hugging Face hub (`model_type` "resnet", as microsoft/resnet-50), whose names are translated.
`model.onnx`, for any other classifier (`architecture` is "onnx"): what its owner's torch.onnx.export wrote.
One input float32 [batch, 3, H, W] of normalised pixels, one output float32 [batch, classes], batch free,
FP32, opset 13 to 20. Beside it, `reference.npz` (`pixels` uint8 [N, 3, H, W], `logits` float32 [N, classes]
that torch gave) lets the build check itself against torch. No code of a checkpoint is ever run: pickles,
TorchScript and torch.export archives, whose loading runs what they hold, are not read.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from steps.vision.models import ARCHITECTURES, PATCHES, Model, make

from trimodal.errors import ArtefactError
from trimodal.settings import describe
from trimodal.vision.artefact import InputSpec

# What torch answered: pixels uint8[N, 3, H, W] and logits float32[N, C].
Reference = tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]
EXPORTED = "onnx"  # `architecture` of a checkpoint with a model.onnx
OPSETS = range(13, 21)
HUB_RESNETS = {("basic", (2, 2, 2, 2)): "resnet18", ("bottleneck", (3, 4, 6, 3)): "resnet50"}
HUB_BLOCK = re.compile(
    r"resnet\.encoder\.stages\.(\d)\.layers\.(\d)\.(?:layer\.(\d)|shortcut)\.(convolution|normalization)"
)
# Part of a published name → of ours.
PLACES = {
    "resnet.embedder.embedder.convolution.": "conv1.",
    "resnet.embedder.embedder.normalization.": "bn1.",
    "classifier.1.": "fc.",
    ".mlp.linear_1.": ".mlp.0.",
    ".mlp.linear_2.": ".mlp.3.",
}


class CheckpointConfig(BaseModel):
    """`config.json` of a checkpoint. `labels` are in the order of the classes; numbers when left out."""

    model_config = ConfigDict(extra="forbid")

    architecture: str
    num_classes: int = Field(ge=2, le=100_000)
    input: InputSpec
    labels: list[str] = Field(default_factory=list)
    description: str = ""

    @model_validator(mode="after")
    def _agree(self) -> CheckpointConfig:
        if self.architecture not in (*ARCHITECTURES, EXPORTED):
            known = ", ".join([*ARCHITECTURES, EXPORTED])
            raise ValueError(f"architecture '{self.architecture}' is not one of {known}")
        patch = PATCHES.get(self.architecture)
        if patch and (self.input.height != self.input.width or self.input.height % patch):
            raise ValueError(f"{self.architecture} needs a square input, a multiple of {patch} pixels")
        self.labels = self.labels or [str(index) for index in range(self.num_classes)]
        if len(self.labels) != self.num_classes:
            raise ValueError(f"{len(self.labels)} labels for {self.num_classes} classes")
        return self


def read_config(directory: Path) -> CheckpointConfig:
    """Raises: ArtefactError: missing, or with a field that is wrong."""
    file = _file(directory, "config.json")
    try:
        found = json.loads(file.read_bytes())
        if isinstance(found, dict) and found.get("model_type") == "resnet":
            found = _of_hub_resnet(
                found, json.loads(_file(directory, "preprocessor_config.json").read_bytes())
            )
        return CheckpointConfig.model_validate(found)
    except ValidationError as error:
        raise ArtefactError(f"{file}: {describe(error, CheckpointConfig)}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ArtefactError(f"{file} cannot be read as a classifier's ({error})") from None


def load_model(directory: Path, config: CheckpointConfig) -> Model:
    """The model, ready to evaluate. Raises: ArtefactError: weights are missing or damaged, or do not fit."""
    from safetensors.torch import load_file

    file = _file(directory, "model.safetensors")
    model = make(config.architecture, config.num_classes, config.input)
    try:
        loaded = model.load_state_dict(
            {_own_name(name): weight for name, weight in load_file(file).items()}, strict=False
        )
    except Exception as error:  # safetensors and torch raise errors of their own for damage and for shapes.
        raise ArtefactError(f"{file} does not fit {config.architecture}: {error}") from None
    missing = [key for key in loaded.missing_keys if not key.endswith("num_batches_tracked")]
    if missing or loaded.unexpected_keys:
        examples = ", ".join([*missing, *loaded.unexpected_keys][:3])
        raise ArtefactError(
            f"{file} does not fit {config.architecture}: "
            f"{len(missing)} tensors missing, {len(loaded.unexpected_keys)} unknown ({examples} …)"
        )
    return model.eval()


def load_graph(directory: Path, config: CheckpointConfig) -> tuple[onnx.ModelProto, Reference | None]:
    """The exported classifier, its contract checked, and what torch answered where that is beside it.

    Raises:
        ArtefactError: a file is missing or damaged, or not as the contract says.
    """
    file = _file(directory, "model.onnx")
    try:
        model = onnx.load(file)
        onnx.checker.check_model(file, full_check=True)
    except Exception as error:  # protobuf, onnx and the file system raise errors of their own.
        raise ArtefactError(f"{file} is not a valid ONNX model: {str(error).splitlines()[0]}") from None
    height, width = config.input.height, config.input.width
    wanted = (["free", 3, height, width], ["free", config.num_classes])
    for what, values, shape in zip(
        ("input", "output"), (model.graph.input, model.graph.output), wanted, strict=True
    ):
        found = [_described(value) for value in values]
        if found != [f"float {shape}"]:
            raise ArtefactError(f"{file}: {what} must be float {shape}, not {'; '.join(found) or 'none'}")
    (opset,) = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")] or [0]
    if opset not in OPSETS:
        raise ArtefactError(f"{file} is of opset {opset}: export it with opset_version={OPSETS[-1]}")
    reference = directory / "reference.npz"
    return model, _read_reference(reference, config) if reference.is_file() else None


def _file(directory: Path, name: str) -> Path:
    if not (directory / name).is_file():
        raise ArtefactError(f"{directory} is not a vision checkpoint: it lacks {name}")
    return directory / name


def _of_hub_resnet(config: dict[str, Any], preprocessor: dict[str, Any]) -> dict[str, Any]:
    """transformers' ResNetConfig and ConvNextImageProcessor in our terms. Raises KeyError, ValueError."""
    shape = (config["layer_type"], tuple(config["depths"]))
    if shape not in HUB_RESNETS or config.get("downsample_in_bottleneck"):
        raise ValueError(f"depths {list(shape[1])} of {shape[0]} layers are neither ResNet-18 nor ResNet-50")
    size = preprocessor["size"]
    side = int(size["shortest_edge"] if isinstance(size, dict) else size)
    # As ConvNextImageProcessor: below 384 a crop of the share crop_pct, from there on no crop.
    share = preprocessor.get("crop_pct") or 224 / 256
    labels = config["id2label"]
    spec = {
        "height": side,
        "width": side,
        **({"resize": "crop", "resize_to": int(side / share)} if side < 384 else {"resize": "exact"}),
        "filter": {2: "bilinear", 3: "bicubic"}[preprocessor.get("resample", 3)],
        "mean": preprocessor["image_mean"],
        "std": preprocessor["image_std"],
    }
    return {
        "architecture": HUB_RESNETS[shape],
        "num_classes": len(labels),
        "labels": [labels[str(index)] for index in range(len(labels))],
        "input": spec,
    }


def _own_name(name: str) -> str:
    """Of the hub's ResNets, and of torchvision's first ViT weights, as our networks have it."""
    for part, own in PLACES.items():
        name = name.replace(part, own)
    if found := HUB_BLOCK.match(name):
        stage, block, layer, kind = found.groups()
        if layer is None:
            place = f"downsample.{0 if kind == 'convolution' else 1}"
        else:
            place = f"{'conv' if kind == 'convolution' else 'bn'}{int(layer) + 1}"
        name = f"layer{int(stage) + 1}.{block}.{place}{name[found.end() :]}"
    return name


def _described(value: onnx.ValueInfoProto) -> str:
    tensor = value.type.tensor_type
    kind = str(onnx.TensorProto.DataType.Name(tensor.elem_type)).lower()
    shape = [dim.dim_value if dim.HasField("dim_value") else "free" for dim in tensor.shape.dim]
    return f"{kind} {shape}"


def _read_reference(file: Path, config: CheckpointConfig) -> Reference:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            pixels, logits = arrays["pixels"], arrays["logits"]
    except Exception as error:  # zipfile, numpy and KeyError, depending on what is wrong.
        raise ArtefactError(f"{file} lacks 'pixels' or 'logits' ({type(error).__name__})") from None
    shape = (len(pixels), 3, config.input.height, config.input.width)
    if pixels.dtype != np.uint8 or pixels.shape != shape or logits.shape != (len(pixels), config.num_classes):
        raise ArtefactError(
            f"{file}: 'pixels' must be uint8 {list(shape)}, 'logits' one row of {config.num_classes} for each"
        )
    return pixels, logits.astype(np.float32)
