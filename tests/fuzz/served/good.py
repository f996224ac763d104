"""Asks one sound request of each modality: what came back at first must come back for as long as it runs."""

from __future__ import annotations

import base64
import json
import secrets
from typing import Any

from tritonclient.grpc import service_pb2

from tests.e2e.fakes import png
from tests.fuzz.served.generate import SAID, STREAMS, put
from tests.fuzz.served.wire import Answer, Wire, post
from trimodal.client.transports.tensors import decode

_JSON = {"Content-Type": "application/json"}
_PICTURE = "data:image/png;base64," + base64.b64encode(png(101)).decode()


async def answers(wire: Wire) -> dict[str, Any]:
    """What is right, by modality; only what does not change from one asking to the next."""
    return {
        "text": await _text(wire),
        "picture": await _picture(wire),
        "vector": await _vector(wire),
        "speech": await _speech(wire),
    }


async def end_streams(wire: Wire) -> None:
    """Ends all live streams that requests may have left open."""
    for number in range(1, STREAMS + 1):
        message = _chunk(number, start=False)
        await wire.infer(message.SerializeToString())  # refused where it is not open


async def _text(wire: Wire) -> Any:
    body = {"model": "llm", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 12}
    found = await _asked(wire, "/v1/chat/completions", body)
    return found["choices"][0]["message"]["content"]


async def _picture(wire: Wire) -> Any:
    found = await _asked(wire, "/v1/images/classifications", {"model": "vision", "input": _PICTURE})
    return found["data"][0]["labels"]


async def _vector(wire: Wire) -> Any:
    found = await _asked(wire, "/v1/embeddings", {"model": "embedding", "input": "hello"})
    return found["data"][0]["embedding"]


async def _speech(wire: Wire) -> Any:
    message = _chunk(STREAMS + 1 + secrets.randbelow(1 << 60), start=True)
    put(message, "audio", SAID.reshape(1, -1))
    answer = await wire.infer(message.SerializeToString())
    if answer.status != "OK":
        return _refused(answer)
    return decode(service_pb2.ModelInferResponse.FromString(answer.body))["committed"].item().decode()


def _chunk(number: int, *, start: bool) -> Any:
    message = service_pb2.ModelInferRequest(model_name="speech")
    message.parameters["sequence_id"].int64_param = number
    message.parameters["sequence_start"].bool_param = start
    message.parameters["sequence_end"].bool_param = True
    return message


async def _asked(wire: Wire, path: str, body: dict[str, Any]) -> Any:
    answer = await wire.http(wire.stack.gateway, post(path, json.dumps(body).encode(), _JSON))
    if answer.status != "200":
        raise AssertionError(f"a sound request to {path}: {_refused(answer)}")
    return json.loads(answer.body)


def _refused(answer: Answer) -> str:
    return f"{answer.status} {answer.text[:300]}"
