"""Exports Whisper's encoder and decoder as two plain ONNX graphs, for ONNX Runtime.

encoder.onnx
    features        float32[batch, mel, frames]            frames even, at most 3000
    hidden          float32[batch, frames/2, width]        encoder output, for checks alone
    cross_key_i     float32[batch, heads, head, frames/2]  of decoder layer i, transposed for the product
    cross_value_i   float32[batch, heads, frames/2, head]
decoder.onnx, for the prompt (past = 0) and for every step after it
    tokens          int64[batch, n]
    cross_key_i, cross_value_i                             as the encoder gives them
    past_key_i, past_value_i    float32[batch, heads, past, head]
    logits          float32[batch, vocabulary]             of the last of the n tokens
    alignment       float32[batch, alignment heads, n, frames/2]  cross-attention after softmax
    key_i, value_i  float32[batch, heads, past + n, head]

`batch`, `frames`, `past` and `n` are free; rows of a batch have one length. Alignment heads come by layer,
and are what word times are made of. FP32 graphs hold operators of the ONNX standard alone, opset 17.
build/speech_onnx.py checks them. TensorRT has a decoder of its own: static_export.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from steps.onnx.trace import trace
from steps.speech.checkpoint import Checkpoint
from torch import Tensor, nn
from torch.nn import functional

from trimodal.speech.engines.onnxruntime import DECODER, ENCODER
from trimodal.speech.engines.torch.network import Whisper
from trimodal.speech.whisper.artefact import NetworkSpec
from trimodal.speech.whisper.graphs import layer_names

OPSET = 17
# A protobuf holds 2 GB: larger weights lie beside the graph.
EXTERNAL_ABOVE = 1_800_000_000  # bytes


class Encoder(nn.Module):
    """features → hidden, then key and value of every decoder layer's cross-attention."""

    def __init__(self, network: Whisper) -> None:
        super().__init__()
        self.network = network

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        hidden = self.network.encoder(features)
        return hidden, *self.network.crossed(hidden)


class Decoder(nn.Module):
    """tokens and all caches → logits of the last token, alignment, new self-attention caches."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__()
        self.decoder = checkpoint.model.model.decoder
        self.projection = checkpoint.model.proj_out
        # With a bias it becomes Gemm, which shares the embeddings' weights: no transposed copy.
        self.no_bias: Tensor
        self.register_buffer("no_bias", torch.zeros(checkpoint.config.vocab_size))
        self.aligned: list[list[int]] = [[] for _ in self.decoder.layers]
        for layer, head in checkpoint.alignment_heads:
            self.aligned[layer].append(head)

    def forward(self, tokens: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
        """`caches` of each layer: cross key, cross value, past key, past value."""
        past, length = caches[2].shape[2], tokens.shape[1]
        places = torch.arange(past, past + length)
        hidden = self.decoder.embed_tokens(tokens) * self.decoder.embed_scale
        hidden = hidden + self.decoder.embed_positions.weight[places]
        # A token sees all of the past and, of the new ones, itself and those before it.
        later = torch.arange(past + length)[None, :] > places[:, None]
        mask = torch.zeros(later.shape).masked_fill(later, torch.finfo(torch.float32).min)
        alignment, present = [], []
        for index, layer in enumerate(self.decoder.layers):
            cross_key, cross_value, past_key, past_value = caches[4 * index : 4 * index + 4]
            normed = layer.self_attn_layer_norm(hidden)
            attention = layer.self_attn
            query = _heads(attention.q_proj(normed) * attention.scaling, attention)
            key = torch.cat([past_key, _heads(attention.k_proj(normed), attention)], 2)
            value = torch.cat([past_value, _heads(attention.v_proj(normed), attention)], 2)
            mixed, _ = _attend(query, key.transpose(2, 3), value, attention, mask)
            hidden = hidden + mixed
            present += [key, value]
            attention = layer.encoder_attn
            normed = layer.encoder_attn_layer_norm(hidden)
            query = _heads(attention.q_proj(normed) * attention.scaling, attention)
            mixed, weights = _attend(query, cross_key, cross_value, attention)
            hidden = hidden + mixed
            if self.aligned[index]:
                alignment.append(weights[:, self.aligned[index]])
            hidden = hidden + _feed_forward(layer, hidden)
        last = self.decoder.layer_norm(hidden[:, -1])
        logits = functional.linear(last, self.projection.weight, self.no_bias)
        return logits, torch.cat(alignment, 1), *present


def _heads(states: Tensor, attention: Any) -> Tensor:
    """[batch, n, width] → [batch, heads, n, head]."""
    shape = states.shape[0], states.shape[1], attention.num_heads, attention.head_dim
    return states.reshape(shape).transpose(1, 2)


def _attend(
    query: Tensor, key: Tensor, value: Tensor, attention: Any, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The attention's output [batch, n, width] and its weights [batch, heads, n, m]; `key` is transposed."""
    scores = query @ key
    weights = (scores if mask is None else scores + mask).softmax(-1)
    return attention.out_proj((weights @ value).transpose(1, 2).flatten(2)), weights


def _feed_forward(layer: Any, hidden: Tensor) -> Tensor:
    widened: Tensor = layer.fc2(layer.activation_fn(layer.fc1(layer.final_layer_norm(hidden))))
    return widened


def export(checkpoint: Checkpoint, directory: Path) -> None:
    """Writes encoder.onnx and decoder.onnx in FP32 into `directory`."""
    config = checkpoint.config
    cross = layer_names("cross_key_{}", "cross_value_{}", layers=config.decoder_layers)
    present = layer_names("key_{}", "value_{}", layers=config.decoder_layers)
    caches = layer_names(
        "cross_key_{}", "cross_value_{}", "past_key_{}", "past_value_{}", layers=config.decoder_layers
    )
    batch, frames, past, length = 2, 100, 3, 2  # No size is 1, and no two are alike: none becomes a constant.
    features = torch.zeros(batch, config.num_mel_bins, frames)
    axes = {"features": {0: "batch", 2: "frames"}, "hidden": {0: "batch", 1: "positions"}}
    axes |= {name: {0: "batch", 3 if "key" in name else 2: "positions"} for name in cross}
    spec = NetworkSpec.model_validate(checkpoint.network())
    encoder = Encoder(Whisper(checkpoint.model.model.state_dict(), spec)).eval()
    traced = trace(encoder, (features,), (["features"], ["hidden", *cross]), axes, OPSET, directory)
    save(traced, directory / ENCODER)
    with torch.inference_mode():
        made = dict(zip(cross, encoder(features)[1:], strict=True))
    heads = config.decoder_attention_heads
    empty = torch.zeros(batch, heads, past, config.d_model // heads)
    inputs = [made[name].clone() if name in made else empty for name in caches]
    del axes["features"], axes["hidden"]
    axes |= {name: {0: "batch", 2: "past"} for name in caches if name.startswith("past")}
    axes |= {name: {0: "batch", 2: "past_and_n"} for name in present}
    axes |= {"tokens": {0: "batch", 1: "n"}, "logits": {0: "batch"}}
    axes |= {"alignment": {0: "batch", 2: "n", 3: "positions"}}
    tokens = torch.ones(batch, length, dtype=torch.int64)
    names = ["tokens", *caches], ["logits", "alignment", *present]
    traced = trace(Decoder(checkpoint).eval(), (tokens, *inputs), names, axes, OPSET, directory)
    save(traced, directory / DECODER)


def save(model: Any, path: Path) -> None:
    """Writes an onnx model, its weights into one file beside it where they are too large for the graph's."""
    import onnx

    large = sum(len(weight.raw_data) for weight in model.graph.initializer) > EXTERNAL_ABOVE
    onnx.save_model(
        model,
        str(path),
        save_as_external_data=large,
        all_tensors_to_one_file=True,
        location=f"{path.name}.data",
    )
