"""Bad requests to `speech`: audio that is none, streams that are none, options that are none.

A bad chunk is sent within a stream that is open: the row fails when the stream does not go on without it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.e2e.bad_input.wire import Answer, Row, Send, Tensor, Wire, binary, message
from tests.e2e.speech.streams import fresh
from trimodal.client.transports.tensors import decode
from trimodal.speech.engines.fake import speak

INFER = "/v2/models/speech/infer"
KINDS = {"float32": "FP32", "float64": "FP64", "int16": "INT16", "int32": "INT32"}
UTTERANCE = speak(["explain", "the", "loop", 0.6])[0]
SECOND = 16_000
RNG = np.random.default_rng(3)


def audio(samples: NDArray[Any], name: str = "audio", shape: list[int] | None = None) -> Tensor:
    return Tensor(name, KINDS[samples.dtype.name], shape or [1, samples.size], samples.tobytes())


GOOD = audio(UTTERANCE)


def over_grpc(wire: Wire, inputs: list[Tensor], parameters: dict[str, Any]) -> Answer:
    return wire.unary(message("speech", inputs, parameters=parameters))[0]


def over_http(wire: Wire, inputs: list[Tensor], parameters: dict[str, Any]) -> Answer:
    body, headers = binary(inputs, parameters)
    return wire.post(INFER, body, headers)[0]


def over_stream(wire: Wire, inputs: list[Tensor], parameters: dict[str, Any]) -> Answer:
    return wire.stream(message("speech", inputs, parameters=parameters))[0]


Over = Callable[[Wire, list[Tensor], dict[str, Any]], Answer]
REFUSAL = {"gRPC": "INVALID_ARGUMENT", "HTTP binary": "400"}
PROTOCOLS: dict[str, Over] = {"gRPC": over_grpc, "HTTP binary": over_http}


def chunk(number: object, *, start: bool = False, end: bool = False, **options: Any) -> dict[str, Any]:
    return {"sequence_id": number, "sequence_start": start, "sequence_end": end, **options}


def within(over: Over, *inputs: Tensor) -> Send:
    """A chunk in an open stream, which then ends with the words that were said before it."""

    def send(wire: Wire) -> Answer:
        number = fresh()
        begun = over_grpc(wire, [GOOD], chunk(number, start=True))
        answer = over(wire, list(inputs), chunk(number))
        ended, response = wire.unary(message("speech", [], parameters=chunk(number, end=True)))
        received = decode(response)["received_s"].item() if ended.served else None
        if not begun.served or received != len(UTTERANCE) / SECOND:
            return Answer("harmed", f"the stream: {begun}, {ended}, {received} s")
        return answer

    return send


def whole(over: Over, *inputs: Tensor, number: object = None, **options: Any) -> Send:
    """A stream in one request."""

    def send(wire: Wire) -> Answer:
        identity = fresh() if number is None else number
        return over(wire, list(inputs), chunk(identity, start=True, end=True, **options))

    return send


def flow(over: Over, *steps: str) -> Send:
    """Chunks of a stream, "start", "end", "both" or "": the answer to the last; the others must be served."""

    def send(wire: Wire) -> Answer:
        number = fresh()
        answers = [
            over(wire, [GOOD], chunk(number, start=step in ("start", "both"), end=step in ("end", "both")))
            for step in steps
        ]
        if not all(answer.served for answer in answers[:-1]):
            return Answer("harmed", str(answers))
        return answers[-1]

    return send


def spoilt(value: float) -> Tensor:
    """One bad sample among good ones."""
    samples = UTTERANCE.copy()
    samples[SECOND // 3] = value
    return audio(samples)


LENGTHS = r"a chunk holds 320 to 480000 samples \(20 ms to 30 s at 16 kHz\)"
FINITE = r"audio: sample \d+ is (nan|-?inf); FP32 samples are finite, within \[-1, 1\]"
INTEGERS = r"FP32 samples lie within \[-1, 1\], integers go into audio_int16"
NOISE = RNG.uniform(-0.3, 0.3, SECOND).astype(np.float32)

# Name, the tensors of a chunk, and the sentence of ours.
CHUNKS: list[tuple[str, list[Tensor], str]] = [
    ("NaN", [spoilt(np.nan)], FINITE),
    ("+∞", [spoilt(np.inf)], FINITE),
    ("integers as FP32", [audio(np.round(NOISE * 32767))], INTEGERS),
    ("19 ms", [audio(NOISE[:319])], f"audio: 319 samples; {LENGTHS}"),
    ("30.001 s", [audio(np.zeros(480_001, np.float32))], f"audio: 480001 samples; {LENGTHS}"),
    (
        "10 minutes",
        [audio(np.zeros(9_600_000, np.int16), "audio_int16")],
        f"audio_int16: 9600000 samples; {LENGTHS}",
    ),
    ("both tensors", [GOOD, audio(np.zeros(400, np.int16), "audio_int16")], "give one of them, not both"),
    ("no tensor", [], f"audio: missing; {LENGTHS}; only a stream's end"),
]
# What Triton itself refuses before the model sees it.
TENSORS: list[tuple[str, list[Tensor], str]] = [
    ("INT32", [audio(np.zeros(400, np.int32))], "'audio' data-type is 'INT32'"),
    ("FP32 in audio_int16", [audio(NOISE, "audio_int16")], "'audio_int16' data-type is 'FP32'"),
    ("interleaved channels", [audio(NOISE, shape=[1, 8_000, 2])], "shape for input 'audio'"),
    ("no batch dimension", [audio(NOISE[:400], shape=[400])], "shape for input 'audio'"),
    ("fewer bytes than samples", [audio(NOISE, shape=[1, 2 * SECOND])], "audio"),
    ("unknown input", [audio(NOISE, "sound")], "'sound'"),
]
START: list[tuple[str, dict[str, Any], str]] = [
    ("sample_rate 8000", {"sample_rate": 8000}, "sample_rate: 8000; only 16000 Hz is taken"),
    ("two channels declared", {"channels": 2}, "channels: 2; one channel is taken"),
    ("unknown policy", {"policy": "fast"}, "policy: 'fast'; known are edge, vad, file"),
    ("unknown language", {"language": "xx"}, r"language: 'xx' is not known \(known: en\)"),
    ("prompt of 1 MB", {"prompt": "x" * 1_000_000}, "prompt.* 1000"),
    ("step_s 0", {"step_s": 0}, r"step_s.* 0\.1"),
    ("step_s a word", {"step_s": "often"}, "step_s: 'often' is not a number"),
    ("unknown parameter", {"colour": "red"}, "colour"),
]
FLOWS = [
    ("no START", ("",), True, "START"),
    ("END without START", ("end",), True, "START"),
    ("END twice", ("start", "end", "end"), True, "START"),
    ("after END", ("both", ""), True, "START"),
]
IDS: list[tuple[str, object, str, str, str]] = [
    ("id 0", 0, "INVALID_ARGUMENT", "400", "sequence_id: missing, or 0"),
    # gRPC has only signed numbers for an id: −1 is 2⁶⁴−1, and what is sent unsigned is refused.
    ("id −1", -1, "OK", "500", ""),
    ("id 2⁶³", 1 << 63, "INVALID_ARGUMENT", "200", ""),
    ("id 2⁶⁴−1", (1 << 64) - 1, "INVALID_ARGUMENT", "200", ""),
    ("id a text", "seven", "INVALID_ARGUMENT", "400", "sequence_id: 'seven' is a text; .* is a number"),
    ("id a long text", "7" * 100, "INVALID_ARGUMENT", "400", "sequence_id: '777"),
]
LEGAL: list[tuple[str, NDArray[Any]]] = [
    ("silence", np.zeros(30 * SECOND, np.float32)),
    ("white noise", RNG.normal(0, 0.2, 2 * SECOND).astype(np.float32)),
    ("30 s of a constant", np.full(30 * SECOND, 0.7, np.float32)),
    ("INT16 from −32768 to 32767", RNG.integers(-32768, 32768, SECOND).astype(np.int16)),
    ("a denormal", np.full(SECOND, 1e-42, np.float32)),
    ("one sample", NOISE[:1]),
]


def prompt_in_latin1(wire: Wire) -> Answer:
    body = {"inputs": [], "parameters": chunk(fresh(), start=True, end=True, prompt="@")}
    data = json.dumps(body).encode().replace(b'"@"', b'"Z\xfcrich"')
    return wire.post(INFER, data, {"Content-Type": "application/json"})[0]


def killed(wire: Wire) -> Answer:
    """Half of a chunk, then the connection ends."""
    body, headers = binary([GOOD], chunk(fresh(), start=True))
    lines = [f"{name}: {value}" for name, value in (headers | {"Content-Length": str(len(body))}).items()]
    head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\n" + "\r\n".join(lines) + "\r\n\r\n"
    return wire.bytes(head.encode() + body[: len(body) // 2], half_close=True)


def json_row(samples: Any, datatype: str = "FP32", **options: Any) -> Send:
    def send(wire: Wire) -> Answer:
        tensor = {"name": "audio", "datatype": datatype, "shape": [1, len(samples)], "data": samples}
        body = {"inputs": [tensor], "parameters": chunk(fresh(), start=True, end=True, **options)}
        return wire.post(INFER, json.dumps(body).encode(), {"Content-Type": "application/json"})[0]

    return send


def tensor(samples: NDArray[Any]) -> Tensor:
    return audio(samples, "audio_int16" if samples.dtype == np.int16 else "audio")


ROWS: list[Row] = []
for at, over in PROTOCOLS.items():
    no = REFUSAL[at]
    ROWS += [Row("speech", name, at, within(over, *given), no, told) for name, given, told in CHUNKS]
    ROWS += [
        Row("speech", name, at, within(over, *given), no, told, own=False) for name, given, told in TENSORS
    ]
    ROWS += [Row("speech", name, at, whole(over, GOOD, **given), no, told) for name, given, told in START]
    ROWS += [Row("speech", name, at, flow(over, *steps), no, told, own) for name, steps, own, told in FLOWS]
    for name, number, grpc_status, http_status, told in IDS:
        status = grpc_status if at == "gRPC" else http_status
        ROWS.append(Row("speech", name, at, whole(over, GOOD, number=number), status, told, own=False))
    yes = "OK" if at == "gRPC" else "200"
    ROWS += [Row("speech", name, at, whole(over, tensor(samples)), yes) for name, samples in LEGAL]
ROWS += [
    Row("speech", "no START", "gRPC stream", flow(over_stream, ""), "stream", "START", own=False),
    Row("speech", "NaN", "gRPC stream", within(over_stream, spoilt(np.nan)), "stream", FINITE, own=False),
    Row(
        "speech", "prompt that is not UTF-8", "HTTP JSON", prompt_in_latin1, "400", "parameters: .* not UTF-8"
    ),
    Row("speech", "killed in the middle of a chunk", "TCP", killed, "closed", own=False),
    Row("speech", "samples as texts", "HTTP JSON", json_row(["a"] * 400), "500", "JSON", own=False),
    Row("speech", "samples of 10⁴⁰", "HTTP JSON", json_row([1e40] * 400), "400", "audio", own=False),
    Row("speech", "integers in audio", "HTTP JSON", json_row([1] * 400), "200"),
]
