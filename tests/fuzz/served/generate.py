"""Makes request number N of a seed: to which surface, and what; always the same for the same number.

Each begins as a valid request, which is then changed at one to three places.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
from tritonclient.grpc import service_pb2

from tests.e2e.fakes import png
from tests.fuzz.choices import Choices
from tests.fuzz.hostile import INTEGERS, dumped, spoil, spoil_bytes, text
from tests.fuzz.served.wire import Answer, Wire, post
from tests.fuzz.targets import bodies, events, pictures
from tests.fuzz.targets.tensors import array, inputs_of
from tests.vision.pictures import closed
from trimodal.speech.engines.fake import speak

# Of live streams: few, as one that is begun and not ended is kept for the idle time.
STREAMS = 48
SAID = speak(["what", "is", "a", "lambda"])[0]
_FLAGS = ("sequence_start", "sequence_end")
_DATATYPES = {
    "bool": "BOOL",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "uint64": "UINT64",
    "float32": "FP32",
    "object": "BYTES",
}
_WRONG_TYPES = ("FP16", "INT8", "BYTES", "FP32", "", "BF16", "INT64")
_MODELS = ("llm", "llm", "vision", "embedding", "speech", "speech_recognize")


@dataclass(frozen=True)
class Request:
    """`surface` is the judge's; `about` tells a person what was sent."""

    surface: str
    send: Callable[[Wire], Awaitable[Answer]]
    about: str


def request(number: int) -> Request:
    """The request with this number."""
    choices = Choices.seeded(number, 2048)
    kinds = (
        *(_body, _body, _body, _framed, _session, _unary, _unary, _unary, _stream, _raw, _json, _json),
        *(_binary, _generate, _live, _live, _triton_framed),
    )
    return choices.pick(kinds)(choices)


def _body(choices: Choices) -> Request:
    path, body, headers = bodies.request(choices)
    whole = all("\n" not in one and "\r" not in one for one in headers.values())
    sent = post(path, body, headers)
    return Request("gateway", lambda wire: wire.http(wire.stack.gateway, sent, whole=whole), _shown(sent))


def _framed(choices: Choices) -> Request:
    """A request to the gateway whose bytes are spoilt, the head too."""
    path, body, headers = bodies.request(choices)
    sent = spoil_bytes(choices, post(path, body[:4000], headers))
    return Request(
        "gateway framing", lambda wire: wire.http(wire.stack.gateway, sent, whole=False), _shown(sent)
    )


def _triton_framed(choices: Choices) -> Request:
    model = choices.pick(_MODELS)
    sent = spoil_bytes(choices, post(f"/v2/models/{model}/infer", _infer_json(choices, model), _JSON))
    return Request("http framing", lambda wire: wire.http(wire.stack.http, sent, whole=False), _shown(sent))


def _session(choices: Choices) -> Request:
    asked = {name: one for name, one in zip(("intent", "model"), events.query(choices), strict=True) if one}
    query = "".join(
        f"{'&' if index else '?'}{name}={quote(one.encode('utf-8', 'replace'))}"
        for index, (name, one) in enumerate(asked.items())
    )[:2000]
    frames: list[str | bytes] = []
    for _ in range(choices.integer(1, 10)):
        made = events.frame(choices)
        frames.append(b"\xff\0binary" if made is None else made.encode("utf-8", "replace").decode())
    return Request(
        "realtime", lambda wire: wire.realtime(query, frames), f"{query} {_shown(repr(frames).encode())}"
    )


def _unary(choices: Choices) -> Request:
    sent = _message(choices, choices.pick(_MODELS)).SerializeToString()
    return Request("grpc", lambda wire: wire.infer(sent), _shown(sent))


def _raw(choices: Choices) -> Request:
    """A message whose protobuf bytes are spoilt."""
    sent = spoil_bytes(choices, _message(choices, choices.pick(_MODELS)).SerializeToString())
    return Request("grpc", lambda wire: wire.infer(sent), _shown(sent))


def _stream(choices: Choices) -> Request:
    """One request in a stream, or several to a model that is not decoupled.

    Answers of a decoupled model beside others in one stream end Triton 2.51 (docs/limitations.md).
    """
    model = choices.pick(_MODELS)
    count = 1 if model == "llm" else choices.pick((1, 2, 4))
    messages = [_message(choices, model) for _ in range(count)]
    for message in messages[: count if count > 1 else 0]:
        message.model_name = model
    sent = [one.SerializeToString() for one in messages]
    if choices.chance(5):
        sent[-1] = spoil_bytes(choices, sent[-1])
    return Request("grpc", lambda wire: wire.stream(sent), _shown(b" + ".join(sent)))


def _live(choices: Choices) -> Request:
    """Chunks of a live stream in any order: without START, END twice, ids used again."""
    number = choices.integer(1, STREAMS)
    sent = []
    for _ in range(choices.integer(1, 5)):
        message = service_pb2.ModelInferRequest(model_name="speech")
        message.parameters["sequence_id"].int64_param = number
        for flag in _FLAGS:
            message.parameters[flag].bool_param = choices.chance(3)
        size = choices.pick((320, 1600, 8000, len(SAID), 100))
        if not choices.chance(6):
            put(message, "audio", SAID[:size].reshape(1, -1))
        sent.append(message.SerializeToString())
    return Request("grpc", lambda wire: wire.stream(sent), f"stream {number}: {len(sent)} chunks")


_JSON = {"Content-Type": "application/json"}


def _json(choices: Choices) -> Request:
    model = choices.pick(_MODELS)
    body = _infer_json(choices, model)
    other = quote(text(choices).encode("utf-8", "replace"))[:200]
    sent = post(f"/v2/models/{choices.pick((model, model, model, other))}/infer", body, _JSON)
    return Request("http", lambda wire: wire.http(wire.stack.http, sent), _shown(sent))


def _generate(choices: Choices) -> Request:
    valid: dict[str, Any] = {
        "text_input": "hello",
        "max_tokens": 4,
        "temperature": 0.5,
        "stop": ["x"],
        "tenant": "t",
    }
    body = dumped(spoil(choices, valid))
    if choices.chance(6):
        body = spoil_bytes(choices, body)
    sent = post(f"/v2/models/llm/{choices.pick(('generate', 'generate_stream'))}", body, _JSON)
    return Request("http", lambda wire: wire.http(wire.stack.http, sent), _shown(sent))


def _binary(choices: Choices) -> Request:
    """The binary extension: JSON in front, tensors behind it, lengths that may lie."""
    message = _message(choices, choices.pick(_MODELS))
    inputs, raw = [], b""
    for tensor, one in zip(message.inputs, message.raw_input_contents, strict=False):
        size = choices.pick((len(one), len(one), len(one), 0, len(one) + 1))
        inputs.append(
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": _sound_shape(tensor),
                "parameters": {"binary_data_size": size},
            }
        )
        raw += one
    head = dumped({"inputs": inputs, "parameters": _parameters_of(message)})
    length = choices.pick((len(head), len(head), len(head), 0, len(head) + 1, 10**12, -1))
    headers = {"Inference-Header-Content-Length": str(length), "Content-Type": "application/octet-stream"}
    sent = post(f"/v2/models/{message.model_name or 'llm'}/infer", head + raw, headers)
    return Request("http", lambda wire: wire.http(wire.stack.http, sent), _shown(sent))


def _infer_json(choices: Choices, model: str) -> bytes:
    """A body for Triton's HTTP, spoilt anywhere but in its shapes."""
    message = _message(choices, model)
    inputs, shapes = [], []
    for tensor, raw in zip(message.inputs, message.raw_input_contents, strict=False):
        kind = next(
            (np.dtype(name) for name, one in _DATATYPES.items() if one == tensor.datatype), np.dtype("O")
        )
        known = kind != np.dtype("O") and len(raw) % kind.itemsize == 0
        data = (
            np.frombuffer(raw, kind).tolist()[:2000] if known else [raw[4:].decode("utf-8", "replace")[:2000]]
        )
        inputs.append({"name": tensor.name, "datatype": tensor.datatype, "data": data})
        shapes.append(_sound_shape(tensor))
    body: Any = {"id": "1", "inputs": inputs, "parameters": _parameters_of(message)}
    made = dumped(spoil(choices, body) if choices.chance(2) else body)
    made = spoil_bytes(choices, made) if choices.chance(5) else made
    for shape in shapes:
        written = json.dumps(shape, separators=(",", ":")).encode()
        made = made.replace(b'"datatype": ', b'"shape": ' + written + b', "datatype" : ', 1)
    return made


def _sound_shape(tensor: Any) -> list[int]:
    """The tensor's shape, unless it ends Triton's HTTP: negative ones and huge ones (docs/limitations.md)."""
    shape = list(tensor.shape)
    return shape if all(one >= 0 for one in shape) and math.prod(shape) <= 1 << 20 else [1, 4]


def _parameters_of(message: Any) -> dict[str, Any]:
    return {
        name: getattr(one, one.WhichOneof("parameter_choice") or "bool_param")
        for name, one in message.parameters.items()
    }


def _message(choices: Choices, model: str) -> Any:
    """A ModelInferRequest: tensors as the model declares them, then a few things that are not so."""
    message = service_pb2.ModelInferRequest(model_name=model, id=choices.pick(("", "1", "x" * 300)))
    _VALID[model](choices, message)
    declared = inputs_of(model)
    for _ in range(choices.integer(0, 2)):
        name = choices.pick(list(declared))
        if all(one.name != name for one in message.inputs):
            made = array(choices, name, *declared[name])
            put(message, name, made if model == "llm" else made.reshape(1, -1))
    for _ in range(choices.pick((0, 0, 1, 1, 2))):
        _spoil_message(choices, message)
    return message


def _valid_llm(choices: Choices, message: Any) -> None:
    name = choices.pick(("text_input", "messages"))
    prompt = "hello" if name == "text_input" else json.dumps([{"role": "user", "content": "hello"}])
    put(message, name, texts(prompt.encode()))
    put(message, "max_tokens", np.array([choices.integer(1, 8)], np.int32))
    message.parameters["triton_enable_empty_final_response"].bool_param = True


def _valid_vision(choices: Choices, message: Any) -> None:
    file = choices.pick((png(100), *pictures.FILES.values()))
    if choices.chance(2):
        file = spoil_bytes(choices, file)
    elif choices.chance(3):
        file = closed(file, choices.integer(20, len(file)))
    put(message, "image", texts(file).reshape(1, 1))


def _valid_embedding(choices: Choices, message: Any) -> None:
    rows = choices.pick((1, 1, 3))
    put(
        message,
        "text_input",
        texts(*[text(choices).encode("utf-8", "replace") or b"a"] * rows).reshape(-1, 1),
    )


def _valid_speech(choices: Choices, message: Any) -> None:
    message.parameters["sequence_id"].int64_param = choices.integer(1, STREAMS)
    for flag in _FLAGS:
        message.parameters[flag].bool_param = True
    put(message, "audio", SAID.reshape(1, -1))


def _valid_recognize(choices: Choices, message: Any) -> None:
    put(message, "window", SAID.reshape(1, -1))


_VALID = {
    "llm": _valid_llm,
    "vision": _valid_vision,
    "embedding": _valid_embedding,
    "speech": _valid_speech,
    "speech_recognize": _valid_recognize,
}


def _spoil_message(choices: Choices, message: Any) -> None:
    kind = choices.integer(0, 8)
    index = choices.integer(0, max(0, len(message.inputs) - 1))
    tensor = message.inputs[index] if message.inputs else None
    if kind == 0 and tensor is not None:
        tensor.datatype = choices.pick(_WRONG_TYPES)
    elif kind == 1 and tensor is not None:
        del tensor.shape[:]
        tensor.shape.extend(
            choices.pick((0, 1, -1, 2, 3, 2**31, 2**62)) for _ in range(choices.integer(0, 4))
        )
    elif kind == 2 and tensor is not None:
        tensor.name = text(choices).encode("utf-8", "replace").decode()[:200]
    elif kind == 3 and message.raw_input_contents:
        at = min(index, len(message.raw_input_contents) - 1)
        message.raw_input_contents[at] = spoil_bytes(choices, message.raw_input_contents[at])
    elif kind == 4:
        _spoil_parameter(choices, message)
    elif kind == 5:
        message.model_name = choices.pick(("", "nobody", "../llm", "x" * 400, "llm\0", "vision", "speech"))
    elif kind == 6:
        message.model_version = choices.pick(("1", "2", "-1", "x", "9" * 40))
    elif kind == 7:
        message.outputs.add(name=choices.pick(("text_output", "nothing", "", "labels")))
    elif message.inputs:
        message.inputs.add().CopyFrom(message.inputs[index])
        if choices.chance(2):
            message.raw_input_contents.append(b"")


def _spoil_parameter(choices: Choices, message: Any) -> None:
    other = text(choices).encode("utf-8", "replace").decode()[:100]
    known = ("priority", "timeout", "tenant", "tier", "policy", "step_s", "probe", "language", "trace")
    name = choices.pick(("sequence_id", *_FLAGS, *known, other))
    kind = choices.integer(0, 3)
    if name == "sequence_id" and kind == 1:
        kind = 2
    if name == "sequence_id" and kind == 0:  # few: each that begins a stream is kept for the idle time
        message.parameters[name].string_param = choices.pick(("", "1", "abc"))
    elif kind == 0:
        message.parameters[name].string_param = text(choices).encode("utf-8", "replace").decode()[:2000]
    elif kind == 1:
        message.parameters[name].int64_param = max(-(2**63), min(2**63 - 1, choices.pick(INTEGERS)))
    elif kind == 2:
        message.parameters[name].bool_param = choices.chance(2)
    else:
        message.parameters[name].double_param = choices.pick((0.5, float("nan"), 1e300, -1.0))


def texts(*values: bytes) -> Any:
    made = np.empty(len(values), object)
    made[:] = values
    return made


def put(message: Any, name: str, values: Any) -> None:
    """Adds a tensor as raw bytes."""
    message.inputs.add(name=name, datatype=_DATATYPES[values.dtype.name], shape=values.shape)
    if values.dtype == object:
        raw = b"".join(len(one).to_bytes(4, "little") + one for one in values.reshape(-1))
    else:
        raw = values.tobytes()
    message.raw_input_contents.append(raw)


def _shown(sent: bytes) -> str:
    return repr(sent if len(sent) <= 1500 else sent[:1000] + b" ... " + sent[-400:])
