"""Defines vision transformers (ViT) with torchvision's parameter names.

The arithmetic is that of torchvision.models.vision_transformer (exact GELU, LayerNorm eps 1e-6, no dropout),
for inference only: no attention masks.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

EPS = 1e-6


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
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


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
