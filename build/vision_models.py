"""Architectures that build/vision_onnx.py knows by name, and how a checkpoint directory is read into one.

A checkpoint is `config.json` and `model.safetensors`; see `CheckpointConfig` for the
fields. Parameter names are torchvision's, so its published weights load. No code of
a checkpoint is ever run.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor, nn

from trimodal.errors import ArtefactError
from trimodal.settings import describe
from trimodal.vision.artefact import InputSpec


class BasicBlock(nn.Module):
    """Two 3×3 convolutions around a shortcut."""

    expansion = 1

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inside, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """1×1, 3×3 (with the stride, as torchvision has it) and 1×1 convolutions around a shortcut."""

    expansion = 4

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inside, 4 * width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


def _shortcut(inside: int, outside: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and inside == outside:
        return None
    return nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))


class ResNet(nn.Module):
    """Stages of blocks; each stage after the first halves the picture. `small`: 3×3 stem, no pooling."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: tuple[int, ...],
        widths: tuple[int, ...],
        num_classes: int,
        *,
        small: bool = False,
    ) -> None:
        super().__init__()
        inside = widths[0]
        self.conv1 = nn.Conv2d(3, inside, *((3, 1, 1) if small else (7, 2, 3)), bias=False)
        self.bn1 = nn.BatchNorm2d(inside)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
        self.stages = len(depths)
        for stage, (depth, width) in enumerate(zip(depths, widths, strict=True), start=1):
            blocks = []
            for index in range(depth):
                blocks.append(block(inside, width, 2 if stage > 1 and index == 0 else 1))
                inside = width * block.expansion
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inside, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, C] of pixels [B, 3, H, W]."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in range(1, self.stages + 1):
            x = getattr(self, f"layer{stage}")(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


class FromBytes(nn.Module):
    """A model of normalised pixels behind the normalisation itself: what is exported takes uint8 pixels.

    (value / 255 − mean) / std is one multiplication and one addition a channel.
    """

    def __init__(self, model: nn.Module, spec: InputSpec) -> None:
        super().__init__()
        self.model = model
        mean, std = (torch.tensor(values, dtype=torch.float64) for values in (spec.mean, spec.std))
        self.register_buffer("pixel_scale", (1 / (255 * std)).float().reshape(1, 3, 1, 1))
        self.register_buffer("pixel_offset", (-mean / std).float().reshape(1, 3, 1, 1))

    def forward(self, pixels: Tensor) -> Tensor:
        """Logits [B, C] of pixels uint8 [B, 3, H, W]."""
        return self.model(pixels.to(torch.float32) * self.pixel_scale + self.pixel_offset)


ARCHITECTURES = {
    "digits-resnet": functools.partial(ResNet, BasicBlock, (1, 1, 1), (16, 32, 64), small=True),
    "resnet18": functools.partial(ResNet, BasicBlock, (2, 2, 2, 2), (64, 128, 256, 512)),
    "resnet50": functools.partial(ResNet, Bottleneck, (3, 4, 6, 3), (64, 128, 256, 512)),
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
        if self.architecture not in ARCHITECTURES:
            raise ValueError(f"architecture '{self.architecture}' is not one of {', '.join(ARCHITECTURES)}")
        self.labels = self.labels or [str(index) for index in range(self.num_classes)]
        if len(self.labels) != self.num_classes:
            raise ValueError(f"{len(self.labels)} labels for {self.num_classes} classes")
        return self


def load_checkpoint(directory: Path) -> tuple[CheckpointConfig, nn.Module]:
    """Configuration and model, ready to evaluate.

    Raises:
        ArtefactError: a file is missing or damaged, or the weights do not fit the architecture.
    """
    from safetensors.torch import load_file

    config_file, weights_file = directory / "config.json", directory / "model.safetensors"
    for file in (config_file, weights_file):
        if not file.is_file():
            raise ArtefactError(f"{directory} is not a vision checkpoint: it lacks {file.name}")
    try:
        config = CheckpointConfig.model_validate_json(config_file.read_text())
    except ValidationError as error:
        raise ArtefactError(f"{config_file}: {describe(error, CheckpointConfig)}") from None
    model = ARCHITECTURES[config.architecture](num_classes=config.num_classes)
    try:
        missing, unexpected = model.load_state_dict(load_file(weights_file), strict=False)
    except Exception as error:  # safetensors and torch raise errors of their own for damage and for shapes.
        raise ArtefactError(f"{weights_file} does not fit {config.architecture}: {error}") from None
    missing = [key for key in missing if not key.endswith("num_batches_tracked")]
    if missing or unexpected:
        examples = ", ".join([*missing, *unexpected][:3])
        raise ArtefactError(
            f"{weights_file} does not fit {config.architecture}: "
            f"{len(missing)} tensors missing, {len(unexpected)} unknown ({examples} …)"
        )
    return config, model.eval()


def random_model(architecture: str, pixels: np.ndarray) -> nn.Module:
    """Random weights (seed 0) for 1000 classes, ready to evaluate.

    Their batch norms have seen `pixels` float32[N, 3, H, W], so that activations keep a realistic range.
    """
    torch.manual_seed(0)
    model = ARCHITECTURES[architecture](num_classes=1000).train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # A plain average over the batches below.
    images = torch.from_numpy(pixels)
    with torch.inference_mode():
        for batch in images.split(16):
            model(batch)
        logits = model.eval()(images)
    # Without training one class would win everywhere: centred, the images themselves decide.
    model.fc.bias.data -= logits.mean(0).clone()
    return model
