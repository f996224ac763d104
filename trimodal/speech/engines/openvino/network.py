"""Makes the layers of a transformer, as nodes of OpenVINO, of the weights of a CTranslate2 model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from trimodal.runtimes.heap import give_back_freed
from trimodal.speech.whisper.weights import ModelFile

if TYPE_CHECKING:
    from openvino import InferRequest, Model, Node

_EPSILON = 1e-5  # of layer norms, as torch has it


def options(threads: int, *, exact: bool) -> dict[str, Any]:
    """How a graph is compiled: in FP32 if `exact`, else as OpenVINO thinks best (bf16 with AMX)."""
    chosen: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    chosen["ENABLE_CPU_PINNING"] = False  # the cores are shared with other engines
    return chosen | ({"INFERENCE_PRECISION_HINT": "f32"} if exact else {})


def compiled(graph: Model, chosen: dict[str, Any]) -> InferRequest:
    """A request that runs the graph on the processor, for one caller at a time."""
    import openvino

    request = openvino.Core().compile_model(graph, "CPU", chosen).create_infer_request()
    give_back_freed()
    return request


class Layers:
    """The half of a Whisper whose weights' names begin with `half`; states are [batch, n, width].

    Attributes:
        count: layers.
        heads, head: of an attention, and the width of one.
    """

    def __init__(self, weights: ModelFile, half: str) -> None:
        from openvino import opset15

        self._weights, self._half, self._ops = weights, half, opset15
        self.count = 0
        while f"{half}/layer_{self.count}/ffn/linear_0/weight" in weights:
            self.count += 1
        self.width = weights.array(f"{half}/position_encodings/encodings").shape[1]
        self.heads = int(weights.array(f"{half}/num_heads"))
        self.head = self.width // self.heads
        self._split, self._swapped = self.whole(0, 0, self.heads, self.head), self.whole(0, 2, 1, 3)

    def whole(self, *numbers: int) -> Node:
        """A constant int64[n]."""
        return self._ops.constant(np.array(numbers, np.int64))

    def floats(self, name: str, rows: slice = slice(None)) -> Node:
        """Weights in FP32."""
        return self._ops.constant(self._weights.floats(f"{self._half}/{name}")[rows])

    def matrix(self, name: str, rows: slice = slice(None)) -> Node:
        """Weights as they are, those in INT8 with what makes FP32 of them: OpenVINO does that as it reads."""
        numbers, scale = self._weights.quantised(f"{self._half}/{name}")
        if scale is None:
            return self.floats(name, rows)
        whole = self._ops.convert(self._ops.constant(np.ascontiguousarray(numbers[rows])), "f32")
        return self._ops.multiply(whole, self._ops.constant(1 / scale[rows, None]))

    def linear(self, states: Node, name: str, rows: slice = slice(None), *, unpacked: bool = False) -> Node:
        """A product with some rows of a matrix, and their bias; `unpacked`: with FP32 made once."""
        weight = self.floats(f"{name}/weight", rows) if unpacked else self.matrix(f"{name}/weight", rows)
        return self._ops.add(self._ops.matmul(states, weight, False, True), self.floats(f"{name}/bias", rows))

    def normed(self, states: Node, name: str) -> Node:
        made = self._ops.mvn(states, self.whole(-1), True, _EPSILON, "inside_sqrt")
        made = self._ops.multiply(made, self.floats(f"{name}/gamma"))
        return self._ops.add(made, self.floats(f"{name}/beta"))

    def projected(self, states: Node, name: str, parts: int, *, unpacked: bool = False) -> list[Node]:
        """Of one matrix's rows as many equal parts, as [batch, heads, n, head]: query, key and value."""
        found = []
        for part in range(parts):
            rows = slice(self.width * part, self.width * (part + 1))
            made = self.linear(states, name, rows, unpacked=unpacked)
            made = self._ops.reshape(made, self._split, special_zero=True)
            found.append(self._ops.transpose(made, self._swapped))
        return found

    def joined(self, states: Node) -> Node:
        """[batch, heads, n, head] → [batch, n, width]."""
        swapped = self._ops.transpose(states, self._swapped)
        return self._ops.reshape(swapped, self.whole(0, 0, self.width), special_zero=True)

    def fed_forward(self, hidden: Node, name: str, *, unpacked: bool = False) -> Node:
        """With what the layer adds at its end."""
        wide = self.linear(self.normed(hidden, f"{name}/layer_norm"), f"{name}/linear_0", unpacked=unpacked)
        narrow = self.linear(self._ops.gelu(wide, "erf"), f"{name}/linear_1", unpacked=unpacked)
        return self._ops.add(hidden, narrow)
