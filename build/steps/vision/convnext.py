"""Defines ConvNeXt with torchvision's parameter names.

The arithmetic is that of torchvision.models.convnext (exact GELU, LayerNorm eps 1e-6 over the channels, no
stochastic depth), for inference only.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

EPS = 1e-6


class Permute(nn.Module):
    """Axes in another order."""

    def __init__(self, *axes: int) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(*self.axes)


class LayerNorm2d(nn.LayerNorm):
    """LayerNorm over the channels of [B, C, H, W]."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    """7×7 convolution within each channel, two linear layers across channels, scaled, added to the input."""

    def __init__(self, width: int, layer_scale: float) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(width, width, 7, padding=3, groups=width),
            Permute(0, 2, 3, 1),
            nn.LayerNorm(width, eps=EPS),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
            Permute(0, 3, 1, 2),
        )
        self.layer_scale = nn.Parameter(torch.full((width, 1, 1), layer_scale))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer_scale * self.block(x) + x
        return out


class ConvNeXt(nn.Module):
    """Stages of blocks; between two of them the picture is halved. `layer_scale` is torchvision's start."""

    def __init__(
        self, depths: tuple[int, ...], widths: tuple[int, ...], num_classes: int, layer_scale: float = 1e-6
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Sequential(nn.Conv2d(3, widths[0], 4, 4), LayerNorm2d(widths[0], eps=EPS))
        ]
        for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            if stage > 0:
                before = widths[stage - 1]
                layers.append(nn.Sequential(LayerNorm2d(before, eps=EPS), nn.Conv2d(before, width, 2, 2)))
            layers.append(nn.Sequential(*(Block(width, layer_scale) for _ in range(depth))))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        last = widths[-1]
        self.classifier = nn.Sequential(
            LayerNorm2d(last, eps=EPS), nn.Flatten(1), nn.Linear(last, num_classes)
        )
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.trunc_normal_(module.weight, std=0.02)
                assert module.bias is not None
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, C] of pixels [B, 3, H, W]."""
        logits: Tensor = self.classifier(self.avgpool(self.features(x)))
        return logits
