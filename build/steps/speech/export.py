"""Exports Whisper with caches of fixed capacity as two plain ONNX graphs, for TensorRT.

encoder.onnx
    features        float32[batch, mel, frames]
    cross_key_i     float[batch, heads, head, frames/2]    of decoder layer i, transposed for the product
    cross_value_i   float[batch, heads, frames/2, head]
decoder.onnx, for the opening and for every step after it
    tokens          int64[batch, n]
    index           int64[1]                               tokens in the cache
    wanted          int64[wanted]                          which of the n tokens logits are given after
    cross_key_i, cross_value_i                             as the encoder gives them
    past_key_i, past_value_i    float[batch, heads, places, head], `places` fixed
    logits          float32[batch, wanted, vocabulary]
    alignment       float32[batch, alignment heads, n, frames/2]
    key_i, value_i  float[batch, heads, n, head]           of the new tokens alone: the caller keeps them

They are the modules of network.py, traced in FP32 with operators of opset 17, so that TensorRT 10 and 11
parse them; caches are FP16 in FP16 graphs.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import torch
from steps.onnx.fp16 import to_fp16
from steps.onnx.trace import trace
from steps.speech.network import Whisper, each
from torch import Tensor, nn

from trimodal.speech.engines.tensorrt.forward import CROSS, NEW, PAST, layer_names

OPSET = 17
# A protobuf holds 2 GB: larger weights lie beside the graph.
EXTERNAL_ABOVE = 1_800_000_000  # bytes
ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
# What the caller reads or writes in FP32, whatever is inside.
KEPT = {ENCODER: ("features",), DECODER: ("logits", "alignment")}


class Crossed(nn.Module):
    """features → key and value of every decoder layer's cross-attention, and nothing that nobody reads."""

    def __init__(self, network: Whisper) -> None:
        super().__init__()
        self.network = network

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.network.crossed(self.network.encoder(features)))


def export(network: Whisper, directory: Path, precision: str) -> None:
    """Writes both graphs of an FP32 network into `directory`, in fp16 or fp32."""
    attention = next(iter(each(network.decoder.layers))).self_attn
    layers, places = len(network.decoder.layers), network.decoder.embed_positions.num_embeddings
    crossed, past, made = (layer_names(*names, layers=layers) for names in (CROSS, PAST, NEW))
    batch, frames, count = 2, 100, 3  # No size is 1, and no two are alike: none becomes a constant.
    encode = Crossed(network).eval()
    features = torch.zeros(batch, network.encoder.conv1.in_channels, frames)
    cross_axes = {name: {0: "batch", 3 if "key" in name else 2: "positions"} for name in crossed}
    axes = {"features": {0: "batch", 2: "frames"}, **cross_axes}
    graph = trace(encode, (features,), (["features"], crossed), axes, OPSET, directory)
    write(graph, directory / ENCODER, precision)
    with torch.inference_mode():
        caches = dict(zip(crossed, encode(features), strict=True))
    caches = {name: cache.clone() for name, cache in caches.items()}
    caches |= {name: torch.zeros(batch, attention.heads, places, attention.head) for name in past}
    names = layer_names(*CROSS, *PAST, layers=layers)
    inputs = torch.ones(batch, count, dtype=torch.int64), torch.tensor([1]), torch.tensor([0, count - 1])
    axes = cross_axes | {name: {0: "batch"} for name in past}
    axes |= {"tokens": {0: "batch", 1: "n"}, "wanted": {0: "wanted"}}
    axes |= {"logits": {0: "batch", 1: "wanted"}, "alignment": {0: "batch", 2: "n", 3: "positions"}}
    axes |= {name: {0: "batch", 2: "n"} for name in made}
    graph = trace(
        network.decoder,
        (*inputs, *(caches[name] for name in names)),
        (["tokens", "index", "wanted", *names], ["logits", "alignment", *made]),
        axes,
        OPSET,
        directory,
    )
    write(graph, directory / DECODER, precision)


def write(graph: onnx.ModelProto, path: Path, precision: str) -> None:
    """Saves a traced graph, in FP16 inside where asked for. Raises ArtefactError: a weight does not fit."""
    model = to_fp16(graph, keep=KEPT[path.name]) if precision == "fp16" else graph
    large = sum(len(weight.raw_data) for weight in model.graph.initializer) > EXTERNAL_ABOVE
    onnx.save_model(
        model,
        str(path),
        save_as_external_data=large,
        all_tensors_to_one_file=True,
        location=f"{path.name}.data",
    )
