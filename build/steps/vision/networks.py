"""Defines ResNets (with the small one of the demo), vision transformers and ConvNeXt, for inference only.

Parameters have torchvision's names. The arithmetic is torchvision's too: in transformers and ConvNeXt exact
GELU and LayerNorm eps 1e-6, no dropout, attention masks or stochastic depth.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

EPS = 1e-6


class BasicBlock(nn.Module):
    """Two 3×3 convolutions around a shortcut."""

    expansion = 1

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(inside, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


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
        self.downsample = _shortcut(inside, 4 * width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


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
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        for stage in range(1, self.stages + 1):
            x = getattr(self, f"layer{stage}")(x)
        logits: Tensor = self.fc(torch.flatten(self.avgpool(x), 1))
        return logits


class SelfAttention(nn.Module):
    """Attention over all tokens. Named as torch.nn.MultiheadAttention, written out so that the exported graph
    is the plain pattern (product, softmax, product) that compilers fuse."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)
        nn.init.xavier_uniform_(self.in_proj_weight)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, W] of tokens [B, T, W]."""
        tokens, width = x.shape[1], x.shape[2]
        size = width // self.heads
        queries, keys, values = (
            part.reshape(-1, tokens, self.heads, size).transpose(1, 2)
            for part in nn.functional.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)
        )
        weights = ((queries * size**-0.5) @ keys.transpose(2, 3)).softmax(dim=-1)
        out: Tensor = self.out_proj((weights @ values).transpose(1, 2).reshape(-1, tokens, width))
        return out


class EncoderBlock(nn.Module):
    """Attention and two linear layers, each normalised before and added to its input."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=EPS)
        self.self_attention = SelfAttention(width, heads)
        self.ln_2 = nn.LayerNorm(width, eps=EPS)
        # Dropouts hold the places 2 and 4, so that the names are torchvision's; they do nothing here.
        self.mlp = nn.Sequential(
            nn.Linear(width, inner), nn.GELU(), nn.Dropout(0.0), nn.Linear(inner, width), nn.Dropout(0.0)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attention(self.ln_1(x))
        return torch.add(x, self.mlp(self.ln_2(x)))


class Encoder(nn.Module):
    """Positions, blocks and the last normalisation."""

    def __init__(self, tokens: int, depth: int, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.empty(1, tokens, width).normal_(std=0.02))
        blocks = ((f"encoder_layer_{index}", EncoderBlock(width, heads, inner)) for index in range(depth))
        self.layers = nn.Sequential(OrderedDict[str, nn.Module](blocks))
        self.ln = nn.LayerNorm(width, eps=EPS)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.ln(self.layers(x + self.pos_embedding))
        return out


class VisionTransformer(nn.Module):
    """ViT: a square picture in patches, a class token before them, a linear head on it."""

    def __init__(
        self,
        patch: int,
        depth: int,
        heads: int,
        width: int,
        inner: int,
        num_classes: int,
        image_size: int = 224,
    ) -> None:
        super().__init__()
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.conv_proj = nn.Conv2d(3, width, patch, patch)
        self.encoder = Encoder((image_size // patch) ** 2 + 1, depth, width, heads, inner)
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(width, num_classes)))

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, C] of pixels [B, 3, S, S]."""
        patches = self.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), patches], dim=1)
        logits: Tensor = self.heads(self.encoder(x)[:, 0])
        return logits


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


class ConvNeXtBlock(nn.Module):
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
        return torch.add(self.layer_scale * self.block(x), x)


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
            layers.append(nn.Sequential(*(ConvNeXtBlock(width, layer_scale) for _ in range(depth))))
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
