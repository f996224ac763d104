"""Runs Whisper's encoder in OpenVINO, with the weights of a CTranslate2 model, before CTranslate2's decoder.

A processor with AMX multiplies bf16 by tiles, which CTranslate2 (4.8) does not use, and its attention is one
pass: a half of CTranslate2's time in INT8 for 15 s of audio, a quarter for 30 s (docs/benchmarks_speech.md).
Without AMX CTranslate2's own encoder is as quick.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trimodal.speech.engines.openvino.network import Layers, compiled, options
from trimodal.speech.whisper.weights import ModelFile

if TYPE_CHECKING:
    from openvino import InferRequest, Model, Node

Floats = NDArray[np.float32]
CPU_INFO = Path("/proc/cpuinfo")
_SPEC = "WhisperSpec"


def has_tiles() -> bool:
    """Whether this processor multiplies bf16 by tiles: AMX."""
    try:
        return " amx_bf16 " in CPU_INFO.read_text().replace("\n", " ")
    except OSError:
        return False


class Encoder:
    """One encoder, compiled for each length when it is first used: some 15 % quicker than for any (2026.4).

    Windows are run one by one: two at once are no quicker, and none depends on its neighbours.
    """

    def __init__(self, weights: ModelFile, *, threads: int, precision: str) -> None:
        """`precision`: of the weights. Raises ValueError: no Whisper."""
        if weights.spec != _SPEC:
            raise ValueError(f"it is no Whisper ({weights.spec})")
        self._weights = weights
        self._options = options(threads, exact=not precision.startswith("int8"))
        self._turn = threading.Lock()  # a compiled model runs for one caller at a time
        self._requests: dict[int, InferRequest] = {}

    def encode(self, features: Floats) -> Floats:
        """Hidden states float32[batch, frames / 2, width] of features float32[batch, mel, frames]."""
        frames = features.shape[2]
        with self._turn:
            if frames not in self._requests:
                self._requests[frames] = compiled(_graph(self._weights, frames), self._options)
            request = self._requests[frames]
            rows = [request.infer([row[None]])[0] for row in np.ascontiguousarray(features)]
        return np.concatenate(rows)


def _graph(weights: ModelFile, frames: int) -> Model:
    """features float32[1, mel, frames] → hidden states float32[1, frames / 2, width]."""
    import openvino
    from openvino import opset15 as ops

    make = Layers(weights, "encoder")

    def convolved(hidden: Node, name: str, stride: int) -> Node:
        made = ops.convolution(hidden, make.floats(f"{name}/weight"), [stride], [1], [1], [1])
        bias = ops.unsqueeze(make.floats(f"{name}/bias"), make.whole(0, 2))
        return ops.gelu(ops.add(made, bias), "erf")

    bands = weights.array("encoder/conv1/weight").shape[1]
    features = ops.parameter([1, bands, frames], np.float32, name="features")
    hidden = ops.transpose(convolved(convolved(features, "conv1", 1), "conv2", 2), make.whole(0, 2, 1))
    hidden = ops.add(hidden, make.floats("position_encodings/encodings", slice(frames // 2)))
    # Unpacked: it is computed with, not read, that takes the time.
    for layer in range(make.count):
        name = f"layer_{layer}/self_attention"
        normed = make.normed(hidden, f"{name}/layer_norm")
        states = make.projected(normed, f"{name}/linear_0", 3, unpacked=True)
        mixed = make.joined(ops.scaled_dot_product_attention(*states))
        hidden = ops.add(hidden, make.linear(mixed, f"{name}/linear_1", unpacked=True))
        hidden = make.fed_forward(hidden, f"layer_{layer}/ffn", unpacked=True)
    return openvino.Model([ops.result(make.normed(hidden, "layer_norm"))], [features], "encoder")
