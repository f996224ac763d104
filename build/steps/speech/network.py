"""Defines Whisper in torch: features to caches, and tokens to logits with caches of fixed capacity.

Parameters are named as transformers names them, less "model."; export.py traces these modules. New keys and
values are outputs: the caller writes them into the cache, so a run copies none of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from transformers import WhisperConfig, WhisperModel


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

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__()
        width, heads, inner = config.d_model, config.encoder_attention_heads, config.encoder_ffn_dim
        self.conv1 = nn.Conv1d(config.num_mel_bins, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.embed_positions = nn.Embedding(config.max_source_positions, width)
        self.layers = nn.ModuleList(
            Layer(width, heads, inner, crossed=False) for _ in range(config.encoder_layers)
        )
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

    def __init__(self, config: WhisperConfig, alignment_heads: Sequence[Sequence[int]]) -> None:
        super().__init__()
        width, heads, inner = config.d_model, config.decoder_attention_heads, config.decoder_ffn_dim
        self.embed_tokens = nn.Embedding(config.vocab_size, width)
        self.embed_positions = nn.Embedding(config.max_target_positions, width)
        self.layers = nn.ModuleList(
            Layer(width, heads, inner, crossed=True) for _ in range(config.decoder_layers)
        )
        self.layer_norm = nn.LayerNorm(width)
        self.scale = width**0.5 if config.scale_embedding else 1.0
        self.aligned: list[list[int]] = [[] for _ in self.layers]
        for layer, head in alignment_heads:
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

    def __init__(self, model: WhisperModel, alignment_heads: Sequence[Sequence[int]]) -> None:
        """Of transformers' network, whose weights are used, not copied.

        `alignment_heads`: (layer, head) of the decoder whose attention follows the audio.
        """
        super().__init__()
        with torch.device("meta"):
            self.encoder = Encoder(model.config)
            self.decoder = Decoder(model.config, alignment_heads)
        self.load_state_dict(model.state_dict(), assign=True)
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
