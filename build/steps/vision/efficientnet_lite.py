"""EfficientNet-Lite 0 to 4 in torch, with the names of the published state dicts (lukemelas' and RangiLyu's).

EfficientNet without squeeze-and-excitation and with ReLU6; stem, first and last stage are not scaled.
Padding is TensorFlow's SAME, on the right first, so it depends on the size of the picture.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor, nn

EPSILON = 1e-3
# Repeats, kernel, stride, expansion, channels of each stage (efficientnet/lite/efficientnet_lite_builder.py).
STAGES = (
    (1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112), (4, 5, 2, 6, 192), (1, 3, 1, 6, 320),
)  # fmt: skip
STEM, HEAD = 32, 1280
# Factor of the channels, factor of the repeats, pixels a side.
SCALES = {
    "efficientnet-lite0": (1.0, 1.0, 224),
    "efficientnet-lite1": (1.0, 1.1, 240),
    "efficientnet-lite2": (1.1, 1.2, 260),
    "efficientnet-lite3": (1.2, 1.4, 280),
    "efficientnet-lite4": (1.4, 1.8, 300),
}


class EfficientNetLite(nn.Module):
    """Logits [B, classes] of normalised pixels [B, 3, side, side]."""

    def __init__(self, name: str, classes: int) -> None:
        super().__init__()
        width, depth, side = SCALES[name]
        self._conv_stem, side = padded_convolution(3, STEM, 3, 2, side)
        self._bn0 = nn.BatchNorm2d(STEM, EPSILON)
        blocks, inside = [], STEM
        for number, (repeats, kernel, stride, expansion, channels) in enumerate(STAGES):
            fixed = number in (0, len(STAGES) - 1)
            outside = _rounded(channels * width)
            for repeat in range(repeats if fixed else math.ceil(repeats * depth)):
                step = stride if repeat == 0 else 1
                blocks.append(_Block(inside, outside, kernel, step, expansion, side))
                inside, side = outside, math.ceil(side / step)
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = nn.Conv2d(inside, HEAD, 1, bias=False)
        self._bn1 = nn.BatchNorm2d(HEAD, EPSILON)
        self._fc = nn.Linear(HEAD, classes)
        self._relu = nn.ReLU6()

    def forward(self, pixels: Tensor) -> Tensor:
        x = self._relu(self._bn0(self._conv_stem(pixels)))
        for block in self._blocks:
            x = block(x)
        x = self._relu(self._bn1(self._conv_head(x)))
        logits: Tensor = self._fc(x.mean((2, 3)))
        return logits


class _Block(nn.Module):
    def __init__(
        self, inside: int, outside: int, kernel: int, stride: int, expansion: int, side: int
    ) -> None:
        super().__init__()
        middle = inside * expansion
        self._expands, self._adds = expansion > 1, stride == 1 and inside == outside
        if self._expands:
            self._expand_conv = nn.Conv2d(inside, middle, 1, bias=False)
            self._bn0 = nn.BatchNorm2d(middle, EPSILON)
        self._depthwise_conv, _ = padded_convolution(middle, middle, kernel, stride, side, groups=middle)
        self._bn1 = nn.BatchNorm2d(middle, EPSILON)
        self._project_conv = nn.Conv2d(middle, outside, 1, bias=False)
        self._bn2 = nn.BatchNorm2d(outside, EPSILON)
        self._relu = nn.ReLU6()

    def forward(self, x: Tensor) -> Tensor:
        y = self._relu(self._bn0(self._expand_conv(x))) if self._expands else x
        y = self._relu(self._bn1(self._depthwise_conv(y)))
        y = self._bn2(self._project_conv(y))
        result: Tensor = x + y if self._adds else y
        return result


class _PaddedConvolution(nn.Conv2d):
    """A convolution that pads more at the right and at the bottom; its own padding is the same around."""

    def __init__(
        self, padding: tuple[int, int], inside: int, outside: int, kernel: int, stride: int, groups: int
    ) -> None:
        super().__init__(inside, outside, kernel, stride, groups=groups, bias=False)
        self._sides = (*padding, *padding)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(nn.functional.pad(x, self._sides))


def padded_convolution(
    inside: int, outside: int, kernel: int, stride: int, side: int, groups: int = 1
) -> tuple[nn.Module, int]:
    """The convolution with SAME padding for pictures of `side` pixels, and the side of what it gives."""
    left = math.ceil(side / stride)
    padding = max((left - 1) * stride + kernel - side, 0)
    before, after = padding // 2, padding - padding // 2
    if before == after:
        plain = nn.Conv2d(inside, outside, kernel, stride, before, groups=groups, bias=False)
        return plain, left
    return _PaddedConvolution((before, after), inside, outside, kernel, stride, groups=groups), left


def _rounded(channels: float) -> int:
    """To a multiple of 8, but by no more than a tenth downwards."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near if near >= 0.9 * channels else near + 8


def fits(state: Mapping[str, Tensor]) -> str | None:
    """The name of the network whose state dict this is; None where it is none of them."""
    if "_conv_stem.weight" not in state or "_fc.bias" not in state:
        return None
    shapes = {key: weight.shape for key, weight in state.items()}
    for name in SCALES:
        own = EfficientNetLite(name, len(state["_fc.bias"])).state_dict()
        if {key: weight.shape for key, weight in own.items()} == shapes:
            return name
    return None
