"""Makes Whisper's decoder, as two graphs of OpenVINO, of the weights of a CTranslate2 model.

What its cross-attention reads, once for a window:
    states          float32[1, frames / 2, width]          the encoder's
    cross_key_i     float32[1, heads, head, frames / 2]    of decoder layer i, transposed: it is read in order
    cross_value_i   float32[1, heads, frames / 2, head]
The decoder:
    tokens          int64[batch, n]
    places          int64[batch, n]                        of the tokens
    mask            float32[batch, 1, n, places + n]       0 where a token sees a place, else far below
    wanted          int64[m]                               which of the n tokens logits are given after
    cross_key_i     float32[batch, heads, head, frames / 2]
    cross_value_i   float32[batch, heads, frames / 2, head]
    past_key_i, past_value_i    float32[batch, heads, places, head]
    logits          float32[batch, m, vocabulary]
    alignment       float32[batch, alignment heads, n, frames / 2]
    key_i, value_i  float32[batch, heads, n, head]         of the new tokens alone: the caller keeps them

INT8 weights stay INT8: a step of one token takes as long as they take to be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from trimodal.speech.engines.openvino.network import Layers
from trimodal.speech.whisper.weights import ModelFile

if TYPE_CHECKING:
    from openvino import Model


def crossing_graph(weights: ModelFile) -> Model:
    """The first graph."""
    import openvino
    from openvino import opset15 as ops

    make = Layers(weights, "decoder")
    states = ops.parameter([1, -1, make.width], np.float32, name="states")
    results = []
    for layer in range(make.count):
        key, value = make.projected(states, f"layer_{layer}/attention/linear_1", 2, unpacked=True)
        results += [ops.transpose(key, make.whole(0, 1, 3, 2)), value]
    return openvino.Model([ops.result(each) for each in results], [states], "crossing")


def decoder_graph(weights: ModelFile, alignment_heads: Sequence[Sequence[int]]) -> Model:
    """The second graph.

    Args:
        alignment_heads: (layer, head) whose attention follows the audio; none are known: all of the later
            half of the layers, as CTranslate2 takes them.
    """
    import openvino
    from openvino import opset15 as ops

    make = Layers(weights, "decoder")
    later = ((layer, head) for layer in range(make.count // 2, make.count) for head in range(make.heads))
    heads = alignment_heads or list(later)
    table = "position_encodings/encodings"
    tokens, places = (ops.parameter([-1, -1], np.int64, name=name) for name in ("tokens", "places"))
    mask = ops.parameter([-1, 1, -1, -1], np.float32, name="mask")
    wanted = ops.parameter([-1], np.int64, name="wanted")
    given, made, alignment = [tokens, places, mask, wanted], [], []
    hidden = ops.gather(make.matrix("embeddings/weight"), tokens, make.whole(0))
    hidden = ops.add(hidden, ops.gather(make.floats(table), places, make.whole(0)))
    for layer in range(make.count):
        transposed, shape = [-1, make.heads, make.head, -1], [-1, make.heads, -1, make.head]
        caches = [
            ops.parameter(transposed if name == "cross_key" else shape, np.float32, name=f"{name}_{layer}")
            for name in ("cross_key", "cross_value", "past_key", "past_value")
        ]
        given += caches
        name = f"layer_{layer}/self_attention"
        query, key, value = make.projected(make.normed(hidden, f"{name}/layer_norm"), f"{name}/linear_0", 3)
        keys, values = ops.concat([caches[2], key], 2), ops.concat([caches[3], value], 2)
        mixed = ops.scaled_dot_product_attention(query, keys, values, mask)
        hidden = ops.add(hidden, make.linear(make.joined(mixed), f"{name}/linear_1"))
        made += [key, value]
        name = f"layer_{layer}/attention"
        (query,) = make.projected(make.normed(hidden, f"{name}/layer_norm"), f"{name}/linear_0", 1)
        query = ops.multiply(query, ops.constant(np.float32(make.head**-0.5)))
        attention = ops.softmax(ops.matmul(query, caches[0], False, False), -1)
        aligned = [head for at, head in heads if at == layer]
        if aligned:
            alignment.append(ops.gather(attention, make.whole(*aligned), make.whole(1)))
        mixed = ops.matmul(attention, caches[1], False, False)
        hidden = ops.add(hidden, make.linear(make.joined(mixed), f"{name}/linear_2"))
        hidden = make.fed_forward(hidden, f"layer_{layer}/ffn")
    last = make.normed(ops.gather(hidden, wanted, make.whole(1)), "layer_norm")
    logits = ops.matmul(last, make.matrix("projection/weight"), False, True)
    results = [logits, ops.concat(alignment, 1), *made]
    return openvino.Model([ops.result(each) for each in results], given, "decoder")
