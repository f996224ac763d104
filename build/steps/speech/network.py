"""Defines Whisper in torch: features to caches, and tokens to logits with caches of fixed capacity.

Parameters are named as transformers names them, less "model."; export.py traces these modules. New keys and
values are outputs: the caller writes them into the cache, so a run copies none of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class NetworkSpec:
    """What a network is beside the shapes of its weights.

    Attributes:
        alignment_heads: (layer, head) of the decoder whose attention follows the audio.
        embed_scale: factor of the decoder's token embeddings.
    """

    encoder_heads: int
    decoder_heads: int
    alignment_heads: Sequence[Sequence[int]]
    embed_scale: float = 1.0


class Attention(nn.Module):
    """The four projections of one attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head = heads, width // heads
        self.q_proj, self.v_proj, self.out_proj = (nn.Linear(width, width) for _ in range(3))
        self.k_proj = nn.Linear(width, width, bias=False)

    def query(self, states: Tensor) -> Tensor:
        """Scaled queries float[batch, heads, n, head] of states float[batch, n, width]."""
        scaled: Tensor = self.split(self.q_proj(states)) * self.head**-0.5
        return scaled

    def key(self, states: Tensor) -> Tensor:
        """Keys float[batch, heads, n, head]."""
        return self.split(self.k_proj(states))

    def value(self, states: Tensor) -> Tensor:
        """Values float[batch, heads, n, head]."""
        return self.split(self.v_proj(states))

    def split(self, states: Tensor) -> Tensor:
        """[batch, n, width] → [batch, heads, n, head]."""
        return states.reshape(*states.shape[:2], self.heads, self.head).transpose(1, 2)

    def out(self, mixed: Tensor) -> Tensor:
        """[batch, heads, n, head] → [batch, n, width], projected."""
        projected: Tensor = self.out_proj(mixed.transpose(1, 2).flatten(2))
        return projected


class Layer(nn.Module):
    """One layer of the encoder, or with `crossed` of the decoder."""

    def __init__(self, width: int, heads: int, inner: int, *, crossed: bool) -> None:
        super().__init__()
        self.self_attn, self.self_attn_layer_norm = Attention(width, heads), nn.LayerNorm(width)
        if crossed:
            self.encoder_attn, self.encoder_attn_layer_norm = Attention(width, heads), nn.LayerNorm(width)
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.final_layer_norm = nn.LayerNorm(width)

    def feed_forward(self, hidden: Tensor) -> Tensor:
        """What the layer adds to `hidden` at its end, of the same shape."""
        widened: Tensor = self.fc2(functional.gelu(self.fc1(self.final_layer_norm(hidden))))
        return widened


class Encoder(nn.Module):
    """Features float32[batch, mel, frames] → hidden float[batch, frames/2, width]."""

    def __init__(self, weights: Mapping[str, Tensor], heads: int) -> None:
        super().__init__()
        width, bands, _ = weights["encoder.conv1.weight"].shape
        self.conv1 = nn.Conv1d(bands, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.embed_positions = nn.Embedding(*weights["encoder.embed_positions.weight"].shape)
        self.layers = layers(weights, "encoder", width, heads)
        self.layer_norm = nn.LayerNorm(width)

    def forward(self, features: Tensor) -> Tensor:
        hidden = functional.gelu(self.conv1(features.to(self.conv1.weight.dtype)))
        hidden = functional.gelu(self.conv2(hidden)).transpose(1, 2)
        hidden = hidden + self.embed_positions.weight[: hidden.shape[1]]
        for layer in each(self.layers):
            normed, attention = layer.self_attn_layer_norm(hidden), layer.self_attn
            query, key, value = attention.query(normed), attention.key(normed), attention.value(normed)
            # Plain products: compilers find the attention in them.
            hidden = hidden + attention.out((query @ key.transpose(2, 3)).softmax(-1) @ value)
            hidden = hidden + layer.feed_forward(hidden)
        normed_hidden: Tensor = self.layer_norm(hidden)
        return normed_hidden


class Decoder(nn.Module):
    """Tokens and caches → logits, alignment, and the new tokens' keys and values."""

    def __init__(self, weights: Mapping[str, Tensor], spec: NetworkSpec) -> None:
        super().__init__()
        vocabulary, width = weights["decoder.embed_tokens.weight"].shape
        self.embed_tokens = nn.Embedding(vocabulary, width)
        self.embed_positions = nn.Embedding(*weights["decoder.embed_positions.weight"].shape)
        self.layers = layers(weights, "decoder", width, spec.decoder_heads, crossed=True)
        self.layer_norm = nn.LayerNorm(width)
        self.scale = spec.embed_scale
        self.aligned: list[list[int]] = [[] for _ in self.layers]
        for layer, head in spec.alignment_heads:
            self.aligned[layer].append(head)

    def forward(self, tokens: Tensor, index: Tensor, wanted: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
        """One run over n new tokens of each row.

        Args:
            tokens: int64[batch, n].
            index: int64[1], tokens in the cache: the place of the first new one.
            wanted: int64[m], which of the n tokens logits are given after.
            caches: of each layer cross key float[batch, heads, head, frames/2], cross value
                float[batch, heads, frames/2, head], past key and value float[batch, heads, places, head],
                finite everywhere; what lies at `index` and later counts for nothing.

        Returns:
            logits float32[batch, m, vocabulary]; alignment float32[batch, alignment heads, n, frames/2] after
            softmax; of each layer the new key and value float[batch, heads, n, head].
        """
        count, capacity = tokens.shape[1], caches[2].shape[2]
        new = torch.arange(count, device=tokens.device)
        hidden = self.embed_tokens(tokens) * self.scale + self.embed_positions.weight[index + new]
        lowest = torch.finfo(hidden.dtype).min
        unseen = torch.arange(capacity, device=tokens.device)[None, :] >= index
        later = new[None, :] > new[:, None]
        before = torch.zeros(unseen.shape, dtype=hidden.dtype, device=tokens.device)
        before = before.masked_fill(unseen, lowest)
        among = torch.zeros(later.shape, dtype=hidden.dtype, device=tokens.device)
        among = among.masked_fill(later, lowest)
        alignment: list[Tensor] = []
        made: list[Tensor] = []
        for number, layer in enumerate(each(self.layers)):
            cross_key, cross_value, past_key, past_value = caches[4 * number : 4 * number + 4]
            normed, attention = layer.self_attn_layer_norm(hidden), layer.self_attn
            query, key, value = attention.query(normed), attention.key(normed), attention.value(normed)
            # Scores are joined, not caches: those would be copied whole for every token.
            scores = [query @ past_key.transpose(2, 3) + before, query @ key.transpose(2, 3) + among]
            weights = torch.cat(scores, -1).softmax(-1)
            mixed = weights[..., :capacity] @ past_value + weights[..., capacity:] @ value
            hidden = hidden + attention.out(mixed)
            made += [key, value]
            attention = layer.encoder_attn
            weights = (attention.query(layer.encoder_attn_layer_norm(hidden)) @ cross_key).softmax(-1)
            hidden = hidden + attention.out(weights @ cross_value)
            # Slices: a list of heads would be copied to the GPU, which no CUDA graph may hold.
            alignment += [weights[:, head : head + 1] for head in self.aligned[number]]
            hidden = hidden + layer.feed_forward(hidden)
        embedded = self.embed_tokens.weight
        last = self.layer_norm(hidden.index_select(1, wanted)).flatten(0, 1)
        # With a bias a graph has Gemm, which shares the embeddings' weights: no transposed copy.
        logits = functional.linear(last, embedded, torch.zeros(len(embedded))).unflatten(
            0, (tokens.shape[0], -1)
        )
        return logits.float(), torch.cat(alignment, 1).float(), *made


class Whisper(nn.Module):
    """Both halves, with the weights that it is given."""

    def __init__(self, weights: Mapping[str, Tensor], spec: NetworkSpec) -> None:
        """`weights` as transformers names them, with or without "model."; they are used, not copied.

        Raises ValueError: one is missing, too many, or of another shape; says which.
        """
        super().__init__()
        weights = {name.removeprefix("model."): tensor for name, tensor in weights.items()}
        weights.pop("proj_out.weight", None)  # tied to the embeddings
        try:
            with torch.device("meta"):
                self.encoder = Encoder(weights, spec.encoder_heads)
                self.decoder = Decoder(weights, spec)
        except (KeyError, ValueError, IndexError, AssertionError) as error:
            raise ValueError(f"the weights are no Whisper's: {error}") from None
        own = self.state_dict()
        for name in sorted({*own, *weights}):
            shapes = [tuple(of[name].shape) if name in of else None for of in (own, weights)]
            if shapes[0] != shapes[1]:
                raise ValueError(f"the weight {name} has shape {shapes[1]}, not {shapes[0]}")
        self.load_state_dict(weights, assign=True)
        self.eval()

    def crossed(self, hidden: Tensor) -> list[Tensor]:
        """Of each decoder layer the key float[batch, heads, head, n], and the value float[…, n, head]."""
        found = []
        for layer in each(self.decoder.layers):
            attention = layer.encoder_attn
            found += [
                attention.key(hidden).transpose(2, 3).contiguous(),
                attention.value(hidden).contiguous(),
            ]
        return found


def each(modules: nn.ModuleList) -> Iterable[Layer]:
    """The layers by their type, which a list of modules does not tell."""
    return cast("Iterable[Layer]", modules)


def layers(
    weights: Mapping[str, Tensor], half: str, width: int, heads: int, *, crossed: bool = False
) -> nn.ModuleList:
    """As many layers as there are weights of. Raises KeyError: not one."""
    inner = weights[f"{half}.layers.0.fc1.weight"].shape[0]
    numbers: Sequence[int] = [
        int(name.split(".")[2]) for name in weights if name.startswith(f"{half}.layers.")
    ]
    return nn.ModuleList(Layer(width, heads, inner, crossed=crossed) for _ in range(max(numbers) + 1))
