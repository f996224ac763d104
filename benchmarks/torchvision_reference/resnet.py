"""Computes what torchvision's ResNet does, to compare with: torchvision does not load beside this torch.

After torchvision/models/resnet.py (BSD-3-Clause): the names, the order and the arithmetic are its own.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """BasicBlock, or Bottleneck with `wide` 4."""

    def __init__(self, inside: int, planes: int, stride: int, wide: int) -> None:
        super().__init__()
        outside = planes * wide
        shapes = [(inside, planes, 3, stride), (planes, outside, 3, 1)]
        if wide == 4:
            shapes = [(inside, planes, 1, 1), (planes, planes, 3, stride), (planes, outside, 1, 1)]
        for number, (a, b, kernel, step) in enumerate(shapes, 1):
            setattr(self, f"conv{number}", nn.Conv2d(a, b, kernel, step, kernel // 2, bias=False))
            setattr(self, f"bn{number}", nn.BatchNorm2d(b))
        self.layers = len(shapes)
        self.downsample = None
        if stride != 1 or inside != outside:
            shortcut = nn.Conv2d(inside, outside, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for number in range(1, self.layers + 1):
            y = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(y))
            y = torch.relu(y) if number < self.layers else y
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, depths: tuple[int, ...], wide: int, classes: int, width: int = 64) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        inside = width
        for stage, depth in enumerate(depths):
            blocks = []
            for number in range(depth):
                stride = 2 if stage and not number else 1
                blocks.append(Block(inside, width << stage, stride, wide))
                inside = (width << stage) * wide
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inside, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = nn.functional.max_pool2d(x, 3, 2, 1)
        for stage in range(1, 5):
            x = getattr(self, f"layer{stage}")(x)
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits
