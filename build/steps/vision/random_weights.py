"""Makes classifiers of a real shape with random weights that tell images apart, to measure and to test."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from steps.vision.hub import Logits
from torch import nn

BRANCH = 0.2  # what a residual branch of random weights adds, as a share
BASIC = {"layer_type": "basic", "hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2]}
# Name → class of transformers' configuration, and what differs from its defaults.
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "resnet18": ("ResNetConfig", BASIC),
    "resnet50": ("ResNetConfig", {}),
    "vit_b_16": ("ViTConfig", {}),
    "convnext_tiny": ("ConvNextConfig", {}),
}


def random_network(name: str, pixels: npt.NDArray[np.float32], classes: int = 1000) -> nn.Module:
    """One of SHAPES, ready to evaluate; see `settle`."""
    import transformers

    kind, changes = SHAPES[name]
    torch.manual_seed(0)
    config = getattr(transformers, kind)(num_labels=classes, **changes)
    model = transformers.AutoModelForImageClassification.from_config(config, attn_implementation="eager")
    return Logits(settle(model, pixels))


def settle(model: nn.Module, pixels: npt.NDArray[np.float32]) -> nn.Module:
    """A transformers classifier of random weights, brought into a range that trained weights have.

    Its batch norms see `pixels` float32[N, 3, H, W], so that activations keep a realistic range.
    """
    model.train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # A plain average over the batches below.
        if "ResNet" in type(module).__name__ and type(module).__name__.endswith(
            ("BasicLayer", "BottleNeckLayer")
        ):
            # At 1, random branches drown what differs between images, which no trained network does.
            nn.init.constant_(module.layer[-1].normalization.weight, BRANCH)
    for name, parameter in model.named_parameters():
        if name.endswith("layer_scale_parameter"):
            nn.init.uniform_(parameter, 0.1, 0.5)  # At 1e-6, as training starts, blocks do nothing.
    images = torch.from_numpy(pixels)
    with torch.inference_mode():
        for start in range(0, len(images), 16):
            model(pixel_values=images[start : start + 16])
        logits = model.eval()(pixel_values=images).logits
    # Without training one class would win everywhere: centred, the images themselves decide.
    *_, head = (module for module in model.modules() if isinstance(module, nn.Linear))
    head.bias.data -= logits.mean(0).clone()
    return model
