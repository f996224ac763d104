"""Runs Whisper's encoder in OpenVINO, with the weights of a CTranslate2 model, before CTranslate2's decoder.

A processor with AMX multiplies bf16 by tiles, which CTranslate2 (4.8) does not use, and its attention is one
pass: a half of CTranslate2's time in INT8 for 15 s of audio, a quarter for 30 s (docs/benchmarks_speech.md).
Without AMX CTranslate2's own encoder is as quick.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trimodal.runtimes.heap import give_back_freed
from trimodal.speech.whisper.weights import ModelFile

if TYPE_CHECKING:
    from openvino import CompiledModel, Model, Node

Floats = NDArray[np.float32]
CPU_INFO = Path("/proc/cpuinfo")
_SPEC = "WhisperSpec"
_EPSILON = 1e-5  # of layer norms, as torch has it


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

    def __init__(self, file: Path, *, threads: int, precision: str) -> None:
        """Of a CTranslate2 model's `file`, which stays mapped; `precision`: of its weights.

        What is INT8 is computed with as OpenVINO thinks best (bf16 with AMX), other weights in FP32.
        Raises: OSError; ValueError: no Whisper, or of another layout.
        """
        self._weights = ModelFile(file)
        if self._weights.spec != _SPEC:
            raise ValueError(f"it is no Whisper ({self._weights.spec})")
        self._options: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
        self._options["ENABLE_CPU_PINNING"] = False  # the cores are shared with other engines
        if not precision.startswith("int8"):
            self._options["INFERENCE_PRECISION_HINT"] = "f32"
        self._turn = threading.Lock()  # a compiled model runs for one caller at a time
        self._compiled: dict[int, CompiledModel] = {}

    def encode(self, features: Floats) -> Floats:
        """Hidden states float32[batch, frames / 2, width] of features float32[batch, mel, frames]."""
        with self._turn:
            rows = [self._run(row[None]) for row in np.ascontiguousarray(features)]
        return np.concatenate(rows)

    def _run(self, features: Floats) -> Floats:
        frames = features.shape[2]
        if frames not in self._compiled:
            self._compiled[frames] = self._compile(frames)
        hidden: Floats = self._compiled[frames](features)[0]
        return hidden

    def _compile(self, frames: int) -> CompiledModel:
        import openvino

        compiled = openvino.Core().compile_model(_graph(self._weights, frames), "CPU", self._options)
        give_back_freed()
        return compiled


def _graph(weights: ModelFile, frames: int) -> Model:
    """features float32[1, mel, frames] → hidden states float32[1, frames / 2, width]."""
    import openvino
    from openvino import opset15 as ops

    def whole(*numbers: int) -> Node:
        return ops.constant(np.array(numbers, np.int64))

    def floats(name: str) -> Floats:
        return weights.floats(f"encoder/{name}")

    def convolved(hidden: Node, name: str, stride: int) -> Node:
        made = ops.convolution(hidden, ops.constant(floats(f"{name}/weight")), [stride], [1], [1], [1])
        return ops.gelu(ops.add(made, ops.constant(floats(f"{name}/bias").reshape(1, -1, 1))), "erf")

    def normed(hidden: Node, name: str) -> Node:
        made = ops.mvn(hidden, whole(-1), True, _EPSILON, "inside_sqrt")
        made = ops.multiply(made, ops.constant(floats(f"{name}/gamma")))
        return ops.add(made, ops.constant(floats(f"{name}/beta")))

    def linear(hidden: Node, name: str, rows: slice = slice(None)) -> Node:
        product = ops.matmul(hidden, ops.constant(floats(f"{name}/weight")[rows]), False, True)
        return ops.add(product, ops.constant(floats(f"{name}/bias")[rows]))

    def attended(hidden: Node, name: str) -> Node:
        parts = []
        for part in range(3):  # query, key and value: a third each of one matrix's rows
            rows = slice(width * part, width * (part + 1))
            states = ops.reshape(linear(hidden, f"{name}/linear_0", rows), split, special_zero=True)
            parts.append(ops.transpose(states, swapped))
        mixed = ops.transpose(ops.scaled_dot_product_attention(*parts), swapped)
        return linear(ops.reshape(mixed, whole(0, 0, width), special_zero=True), f"{name}/linear_1")

    positions = floats("position_encodings/encodings")[: frames // 2]
    width, heads = positions.shape[1], int(weights.array("encoder/num_heads"))
    split, swapped = whole(0, 0, heads, width // heads), whole(0, 2, 1, 3)
    features = ops.parameter([1, floats("conv1/weight").shape[1], frames], np.float32, name="features")
    hidden = convolved(convolved(features, "conv1", 1), "conv2", 2)
    hidden = ops.add(ops.transpose(hidden, whole(0, 2, 1)), ops.constant(positions))
    layer = 0
    while f"encoder/layer_{layer}/ffn/linear_0/weight" in weights:
        attention, ffn = f"layer_{layer}/self_attention", f"layer_{layer}/ffn"
        hidden = ops.add(hidden, attended(normed(hidden, f"{attention}/layer_norm"), attention))
        wide = linear(normed(hidden, f"{ffn}/layer_norm"), f"{ffn}/linear_0")
        hidden = ops.add(hidden, linear(ops.gelu(wide, "erf"), f"{ffn}/linear_1"))
        layer += 1
    return openvino.Model([ops.result(normed(hidden, "layer_norm"))], [features], "encoder")
