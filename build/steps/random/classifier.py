"""Makes image classifiers with random weights that tell images apart, to measure speed and to test builds."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import nn

BRANCH = 0.2  # what a residual branch of random weights adds, as a share
Fields = dict[str, Any]


@dataclass(frozen=True)
class ClassifierShape:
    """Class of transformers' configuration and of its processor, and what differs from their defaults."""

    kind: str
    config: Fields = field(default_factory=dict)
    processor: str = "ViTImageProcessor"
    fields: Fields = field(default_factory=lambda: _square(224))
    classes: int = 1000


def _square(side: int) -> Fields:
    return {"size": {"height": side, "width": side}}


def _cropped(side: int, shorter: int) -> Fields:
    return {"size": {"shortest_edge": shorter}, "crop_size": {"height": side, "width": side}}


_CONVNEXT = {"size": {"shortest_edge": 224}, "crop_pct": 0.875}
# A width factor of 1 is EfficientNet-B0; the configuration's own defaults are B7.
_B0: Fields = {"width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280, "image_size": 224}

CLASSIFIER_SHAPES = {
    "resnet50": ClassifierShape("ResNet", {}, "ConvNextImageProcessor", _CONVNEXT),
    "vit_b_16": ClassifierShape("ViT"),
    "convnext_tiny": ClassifierShape("ConvNext", {}, "ConvNextImageProcessor", _CONVNEXT),
    "efficientnet_b0": ClassifierShape("EfficientNet", _B0, "EfficientNetImageProcessor"),
    "mobilenet_v2": ClassifierShape("MobileNetV2", {}, "MobileNetV2ImageProcessor", _cropped(224, 256)),
    "swin_tiny": ClassifierShape("Swin"),
    "dinov2_small": ClassifierShape(
        "Dinov2", {"hidden_size": 384, "num_attention_heads": 6, "image_size": 224},
        "BitImageProcessor", _cropped(224, 256),
    ),
}  # fmt: skip


def random_classifier(shape: ClassifierShape, pixels: npt.NDArray[np.float32]) -> nn.Module:
    """transformers' network of that shape, ready to evaluate, in a range that trained weights have.

    Its batch norms see `pixels` float32[N, 3, H, W], so that activations keep a realistic range.
    """
    import torch
    import transformers
    from torch import nn

    torch.manual_seed(0)
    config = getattr(transformers, f"{shape.kind}Config")(num_labels=shape.classes, **shape.config)
    config._attn_implementation = "eager"
    model: nn.Module = getattr(transformers, f"{shape.kind}ForImageClassification")(config).train()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(
                module.weight
            )  # transformers' 0.02 lets a signal fade below BN's epsilon.
        elif isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # A plain average over the batches below.
        elif type(module).__name__ in ("ResNetBasicLayer", "ResNetBottleNeckLayer"):
            # At 1, random branches drown what differs between images, which no trained network does.
            layers: Any = module.layer
            nn.init.constant_(layers[-1].normalization.weight, BRANCH)
    for key, parameter in model.named_parameters():
        if key.endswith("layer_scale_parameter"):
            nn.init.uniform_(parameter, 0.1, 0.5)  # At 1e-6, as training starts, blocks do nothing.
    images = torch.from_numpy(pixels)
    with torch.inference_mode():
        for start in range(0, len(images), 16):
            model(pixel_values=images[start : start + 16])
        logits = model.eval()(pixel_values=images).logits
    # Without training one class would win everywhere: centred and spread, the images themselves decide.
    *_, head = (module for module in model.modules() if isinstance(module, nn.Linear))
    spread = 1 / float(logits.std(0).mean())
    with torch.no_grad():
        head.weight *= spread
        head.bias.copy_((head.bias - logits.mean(0)) * spread)
    return model


def write_classifier(shape: ClassifierShape, directory: Path) -> int:
    """Saves config.json, preprocessor_config.json and FP32 weights; returns the number of parameters."""
    import transformers
    from steps.vision.images import load_images, normalised

    from trimodal.vision.artefact import InputSpec

    side = shape.fields.get("crop_size") or shape.fields["size"]
    height = side.get("height") or side["shortest_edge"]
    spec = InputSpec(height=height, width=height)
    photos, _ = load_images(None, spec)
    model: Any = random_classifier(shape, normalised(photos.pixels[:32], spec))
    model.config.random_weights = True  # Builds do not expect INT8 to agree with torch of such a model.
    model.save_pretrained(directory)
    getattr(transformers, f"{shape.processor}Pil")(**shape.fields).save_pretrained(directory)
    return sum(weight.numel() for weight in model.parameters())
