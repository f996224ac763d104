"""Names the architectures that build/vision_onnx.py knows, with torchvision's parameter names.

Its published weights load (`checkpoint.py` reads them). The networks themselves are in `networks.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from steps.vision.networks import BasicBlock, Bottleneck, ConvNeXt, ConvNeXtBlock, ResNet, VisionTransformer
from torch import Tensor, nn

from trimodal.vision.artefact import InputSpec

Model = nn.Module
ARCHITECTURES: dict[str, Callable[..., Model]] = {
    "digits-resnet": functools.partial(ResNet, BasicBlock, (1, 1, 1), (16, 32, 64), small=True),
    "resnet18": functools.partial(ResNet, BasicBlock, (2, 2, 2, 2), (64, 128, 256, 512)),
    "resnet50": functools.partial(ResNet, Bottleneck, (3, 4, 6, 3), (64, 128, 256, 512)),
    "vit_b_16": functools.partial(VisionTransformer, 16, 12, 12, 768, 3072),
    "convnext_tiny": functools.partial(ConvNeXt, (3, 3, 9, 3), (96, 192, 384, 768)),
    # Of the same kinds, small enough for tests.
    "vit-tiny": functools.partial(VisionTransformer, 16, 2, 2, 32, 64),
    "convnext-nano": functools.partial(ConvNeXt, (1, 2), (16, 32)),
}
BRANCH = 0.2  # what a residual branch of random weights adds, as a share
PATCHES = {"vit_b_16": 16, "vit-tiny": 16}  # the picture must be square and a multiple of it


class FromBytes(nn.Module):
    """A model of normalised pixels behind the normalisation itself: what is exported takes uint8 pixels.

    (value / 255 − mean) / std is one multiplication and one addition a channel.
    """

    pixel_scale: Tensor
    pixel_offset: Tensor

    def __init__(self, model: Model, spec: InputSpec) -> None:
        super().__init__()
        self.model = model
        scale, offset = normalisation(spec)
        self.register_buffer("pixel_scale", torch.from_numpy(scale))
        self.register_buffer("pixel_offset", torch.from_numpy(offset))

    def forward(self, pixels: Tensor) -> Tensor:
        """Logits [B, C] of pixels uint8 [B, 3, H, W]."""
        logits: Tensor = self.model(pixels.to(torch.float32) * self.pixel_scale + self.pixel_offset)
        return logits


def normalisation(spec: InputSpec) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Factor and addend float32[1, 3, 1, 1] that normalise a byte."""
    mean, std = (np.array(values, np.float64).reshape(1, 3, 1, 1) for values in (spec.mean, spec.std))
    return (1 / (255 * std)).astype(np.float32), (-mean / std).astype(np.float32)


def make(architecture: str, num_classes: int, spec: InputSpec) -> Model:
    """The network for pictures of that size, with weights as they start before training."""
    sizes = {"image_size": spec.height} if architecture in PATCHES else {}
    return ARCHITECTURES[architecture](num_classes=num_classes, **sizes)


def random_model(
    architecture: str, spec: InputSpec, pixels: npt.NDArray[np.float32], classes: int = 1000
) -> Model:
    """Random weights (seed 0), ready to evaluate, in a range that trained weights have.

    Their batch norms have seen `pixels` float32[N, 3, H, W], so that activations keep a realistic range.
    """
    torch.manual_seed(0)
    model = make(architecture, classes, spec).train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # A plain average over the batches below.
        elif isinstance(module, BasicBlock | Bottleneck):
            # At 1, random branches drown what differs between images, which no trained network does.
            last = module.bn3 if isinstance(module, Bottleneck) else module.bn2
            nn.init.constant_(last.weight, BRANCH)
        elif isinstance(module, ConvNeXtBlock):
            nn.init.uniform_(module.layer_scale, 0.1, 0.5)  # At 1e-6, as training starts, blocks do nothing.
    images = torch.from_numpy(pixels)
    with torch.inference_mode():
        for start in range(0, len(images), 16):
            model(images[start : start + 16])
        logits = model.eval()(images)
    # Without training one class would win everywhere: centred, the images themselves decide.
    *_, head = (module for module in model.modules() if isinstance(module, nn.Linear))
    head.bias.data -= logits.mean(0).clone()
    return model
