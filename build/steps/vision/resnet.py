"""Defines ResNets with torchvision's parameter names, and the small one of the demo."""

from __future__ import annotations

import torch
from torch import Tensor, nn


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
        out: Tensor = self.relu(y + (x if self.downsample is None else self.downsample(x)))
        return out


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
        out: Tensor = self.relu(y + (x if self.downsample is None else self.downsample(x)))
        return out


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
            blocks: list[nn.Module] = []
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
        logits: Tensor = self.fc(torch.flatten(self.avgpool(x), 1))
        return logits
