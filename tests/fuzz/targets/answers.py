"""What a server, sound or not, sends to the client: errors, tensors, streams, its health page."""

from __future__ import annotations

import asyncio
import json
import warnings
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

from tests.fuzz.choices import Choices
from tests.fuzz.hostile import NUMBERS, dumped, spoil, spoil_bytes, text, value
from tests.fuzz.targets.promise import Broken, promise
from trimodal.client.decoding import merged, predictions, read, vectors
from trimodal.client.errors import from_message, from_status
from trimodal.client.streams.answer import AnswerStream
from trimodal.client.transports.fake import llm_outputs
from trimodal.client.transports.tensors import decode, strings
from trimodal.client.transports.watchdog import HealthPage
from trimodal.errors import TrimodalError
from trimodal.gateway.realtime.hearing.turn import TurnText

_DATATYPES = ("BYTES", "FP32", "INT32", "BOOL", "INT64", "FP16", "BF16", "", "STRING", "FP65")
_MESSAGES = (
    "INVALID_ARG: max_tokens is 0",
    "UNAVAILABLE: no room; retry after 0.4 s",
    "UNAVAILABLE: x; retry after {} s",
    "[request id: 1] in ensemble 'x', INTERNAL: {}",
    "unknown model: '{}' is not found",
    "{}, CANCELLED: {}",
    "Stub process '{}' is not healthy",
    "Request for unknown model: '{}' has no available versions",
)
_SPEECH = {
    "words": strings([b" hi"]),
    "word_starts": np.zeros(1, np.float32),
    "word_ends": np.ones(1, np.float32),
    "word_probabilities": np.ones(1, np.float32),
    "committed": strings([b"hi"]),
    "tentative": strings([b""]),
    "received_s": np.ones(1, np.float32),
    "lag_s": np.zeros(1, np.float32),
    "final": np.ones(1, np.bool_),
}
_WORD = {"text": " ho", "start": 0.0, "end": 1.0, "probability": 0.5, "tokens": [1]}
_CORRECTION = {"first": 0, "count": 1, "words": [_WORD]}
_LABELS = {"labels": strings([b"a", b"b"]).reshape(1, 2), "scores": np.ones((1, 2), np.float32)}


def run(data: bytes) -> None:
    choices = Choices(data)
    with promise(TrimodalError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, of floats that do not fit
        choices.pick((_error, _message, _labels, _heard, _answer, _page))(choices)


def _error(choices: Choices) -> None:
    told = choices.pick(_MESSAGES).replace("{}", text(choices)[:200])
    if choices.chance(2):
        told = spoil_bytes(choices, told.encode("utf-8", "replace")).decode("utf-8", "replace")
    made: Exception = from_message(told, by_model=choices.chance(2))
    if not isinstance(made, TrimodalError):
        raise Broken(f"{made!r}")
    made = from_status(choices.pick(tuple(grpc.StatusCode)), choices.pick((told, None, "")), "host:1")
    if not isinstance(made, TrimodalError):
        raise Broken(f"{made!r}")


def _message(choices: Choices) -> None:
    """Outputs of any type, shape and bytes."""
    response = service_pb2.ModelInferResponse(model_name="m")
    for _ in range(choices.integer(0, 3)):
        shape = [choices.pick((1, 2, 0, -1, 2**40)) for _ in range(choices.integer(0, 3))]
        response.outputs.add(
            name=choices.pick(("labels", "x", "")), datatype=choices.pick(_DATATYPES), shape=shape
        )
        response.raw_output_contents.append(choices.pick((choices.bytes(12), b"\1\0\0\0a", b"\xff" * 8)))
    if choices.chance(6):
        response.raw_output_contents.append(b"")
    outputs = decode(response)
    if choices.chance(2):
        predictions(outputs, 1, "m")
    else:
        vectors(outputs, 1, "m")


def _spoilt(choices: Choices, outputs: dict[str, Any]) -> dict[str, Any]:
    made = dict(outputs)
    for _ in range(choices.integer(0, 2)):
        name = choices.pick(list(outputs))
        kind = choices.integer(0, 4)
        if kind == 0:
            made.pop(name, None)
        elif kind == 1:
            made[name] = strings([text(choices).encode("utf-8", "replace"), b"\xff"][: choices.integer(0, 2)])
        elif kind == 2:
            made[name] = np.array([float(str(choices.pick((*NUMBERS[:15], *NUMBERS[17:]))))], np.float64)
        elif kind == 3:
            made[name] = outputs[name].reshape((1, *outputs[name].shape))
        else:
            made[name] = strings([dumped(value(choices))])
    return made


def _labels(choices: Choices) -> None:
    predictions(_spoilt(choices, _LABELS), 1, "vision")


def _heard(choices: Choices) -> None:
    """A chunk's answer, with a correction whose JSON is spoilt, as a gateway's turn takes it."""
    told = strings([dumped(spoil(choices, _CORRECTION))])
    update = merged([read(_SPEECH), read(_spoilt(choices, {**_SPEECH, "corrections": told}))])
    transcript = TurnText()
    for one in (update, read(_SPEECH)):
        transcript.add(one)
        list(transcript.news(one, tentative=True))


def _answer(choices: Choices) -> None:
    """A stream of an answer whose note and log probabilities are JSON in tensors."""
    whole = llm_outputs("text", choices.pick(("", "stop")), completion_tokens=1)
    whole |= {
        "cache": strings([b"exact"]),
        "similarity": np.ones(1, np.float32),
        "trimmed": strings([json.dumps({"turns": 1}).encode()]),
        "queue_ms": np.ones(1, np.float32),
        "predicted_ttft_ms": np.ones(1, np.float32),
        "logprobs": strings([b'[{"token": "a", "bytes": [97], "logprob": -1.5, "top_logprobs": []}]']),
    }
    stream = AnswerStream(None)  # type: ignore[arg-type]  # nothing is sent
    for _ in range(choices.integer(1, 3)):
        stream._item(_spoilt(choices, whole))


class _Page(HealthPage):
    def __init__(self, body: bytes) -> None:
        super().__init__("127.0.0.1", 1)
        self._body = body

    async def _get(self) -> bytes:
        return self._body


def _page(choices: Choices) -> None:
    """A health page that is none is like no answer."""
    body = choices.pick(
        (choices.bytes(30), dumped({"llm": value(choices)}), b"[" * 5000, dumped(value(choices)))
    )
    lost = asyncio.run(_Page(body).lost(("llm",), 1.0))
    if lost not in ("", "llm"):
        raise Broken(f"{lost!r} is lost")
