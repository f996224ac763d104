"""Bad requests to `speech_recognize` itself, which applications may call with windows of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.e2e.bad_input.speech import NOISE, SECOND, UTTERANCE
from tests.e2e.bad_input.wire import Row, Tensor, by_binary, by_grpc, by_json, texts

MODEL = "speech_recognize"


def window(samples: NDArray[Any], shape: list[int] | None = None) -> Tensor:
    kind = {"float32": "FP32", "int16": "INT16"}[samples.dtype.name]
    return Tensor("window", kind, shape or [1, samples.size], samples.tobytes())


def spoilt(value: float) -> Tensor:
    samples = UTTERANCE.copy()
    samples[7] = value
    return window(samples)


def of_two(name: str, first: str | bytes, second: str | bytes) -> list[Tensor]:
    return [window(NOISE, [2, SECOND // 2]), texts(name, first, second, shape=[2, 1])]


def prompt(text: str | bytes) -> list[Tensor]:
    return [window(UTTERANCE), texts("prompt", text, shape=[1, 1])]


def language(text: str | bytes) -> list[Tensor]:
    return [window(UTTERANCE), texts("language", text, shape=[1, 1])]


REFUSED = [
    ("no window", [texts("language", "en", shape=[1, 1])], "window: missing"),
    ("NaN", [spoilt(np.nan)], "window: sample 7 is nan"),
    ("integers as FP32", [window(np.round(NOISE * 32767))], r"window: a sample of .* lie within \[-1, 1\]"),
    (
        "30 s and a sample",
        [window(np.zeros(480_001, np.float32))],
        r"window: 480001 samples; .*\(30 s at 16000 Hz\)",
    ),
    ("prompt that is not UTF-8", prompt(b"Z\xfcrich"), "prompt is not valid UTF-8: byte 1"),
    ("unknown language", language("xx"), r"language: 'xx' is not known \(known: en\)"),
    ("one bad language of two", of_two("language", "en", "klingon"), r"language\[1\]: 'klingon'"),
    ("one bad prompt of two", of_two("prompt", b"\xff", ""), r"prompt\[0\] is not valid UTF-8"),
]
STOPPED = [
    ("INT16", [window(np.zeros(400, np.int16))], "'window' data-type is 'INT16'"),
    ("33 rows", [window(NOISE[:13_200], [33, 400])], r"batch-size must be <= \d+ "),
    (
        "prompts for another batch",
        [window(NOISE), texts("prompt", "a", "b", shape=[2, 1])],
        "batch size does not match",
    ),
    ("a batch of 0", [window(NOISE[:0], [0, SECOND])], "'window'.* got 0"),
]
LEGAL = [
    ("30 s of noise", [window(np.tile(NOISE, 30))]),
    ("two rows, one silent", [window(np.concatenate([NOISE, NOISE * 0]), [2, SECOND])]),
    ("an empty prompt and language", [*prompt(""), texts("language", "", shape=[1, 1])]),
]
STRINGS = {"inputs": [{"name": "window", "datatype": "FP32", "shape": [1, 2], "data": ["a", "b"]}]}

ROWS: list[Row] = []
for name, inputs, told in REFUSED:
    ROWS.append(Row(MODEL, name, "gRPC", by_grpc(MODEL, *inputs), "INVALID_ARGUMENT", told))
    ROWS.append(Row(MODEL, name, "HTTP binary", by_binary(MODEL, *inputs), "400", told))
for name, inputs, told in STOPPED:
    ROWS.append(Row(MODEL, name, "gRPC", by_grpc(MODEL, *inputs), "INVALID_ARGUMENT", told, own=False))
    ROWS.append(Row(MODEL, name, "HTTP binary", by_binary(MODEL, *inputs), "400", told, own=False))
for name, inputs in LEGAL:
    ROWS.append(Row(MODEL, name, "gRPC", by_grpc(MODEL, *inputs), "OK"))
    ROWS.append(Row(MODEL, name, "HTTP binary", by_binary(MODEL, *inputs), "200"))
SEND = by_json(f"/v2/models/{MODEL}/infer", STRINGS)
ROWS.append(Row(MODEL, "samples as texts", "HTTP JSON", SEND, "500", "JSON", own=False))
