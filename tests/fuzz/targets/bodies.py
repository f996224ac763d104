"""Bodies of every endpoint of the gateway: valid ones, spoilt at some places, and forms of uploads."""

from __future__ import annotations

import base64
import json
from functools import cache

from tests.fuzz.choices import Choices
from tests.fuzz.hostile import dumped, spoil, spoil_bytes, text
from tests.fuzz.targets.app import App, Reply
from tests.fuzz.targets.audio import FILES as RECORDINGS
from tests.fuzz.targets.forms import FORMAT, TOOLS
from tests.fuzz.targets.pictures import FILES as PICTURES
from tests.fuzz.targets.promise import Broken

# Ours alone: 502 to 504 would be of the server behind, and the fakes always answer.
ALLOWED = {200, 400, 401, 403, 404, 405, 408, 413, 415, 429}
_URL = "data:image/png;base64," + base64.b64encode(PICTURES["png"]).decode()
_WAV = base64.b64encode(RECORDINGS["wav"]).decode()
_SPOKEN = [
    {"type": "text", "text": "what"},
    {"type": "image_url", "image_url": {"url": _URL, "detail": "low"}},
    {"type": "input_audio", "input_audio": {"data": _WAV, "format": "wav"}},
]
CHAT = {
    "model": "llm",
    "messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "hello"}],
    "max_tokens": 4,
    "temperature": 0.5,
    "top_p": 0.5,
    "n": 2,
    "seed": 1,
    "stop": ["x"],
    "user": "u",
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "metadata": {"a": "b"},
    "stream": False,
}
BODIES: tuple[tuple[str, dict[str, object]], ...] = (
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", {**CHAT, "stream": True, "stream_options": {"include_usage": True}}),
    ("/v1/chat/completions", {"model": "llm", "messages": CHAT["messages"], "response_format": FORMAT}),
    (
        "/v1/chat/completions",
        {
            "model": "llm",
            "messages": CHAT["messages"],
            "tools": TOOLS,
            "logprobs": True,
            "tool_choice": "auto",
            "top_logprobs": 2,
        },
    ),
    ("/v1/chat/completions", {"model": "assistant", "messages": [{"role": "user", "content": _SPOKEN}]}),
    ("/v1/completions", {"model": "llm", "prompt": ["a", "b"], "max_tokens": 3, "echo": True, "best_of": 1}),
    ("/v1/completions", {"model": "llm", "prompt": "a", "logprobs": 1, "stream": True}),
    ("/v1/completions", {"model": "llm", "prompt": [[1, 2], [3]], "n": 2, "stop_token_ids": [5]}),
    (
        "/v1/chat/completions",
        {
            "model": "llm",
            "messages": [*CHAT["messages"], {"role": "assistant", "content": "a", "reasoning_content": "b"}],  # type: ignore[misc]
            "logit_bias": {"5": -1},
            "min_tokens": 1,
            "ignore_eos": True,
            "continue_final_message": True,
            "chat_template_kwargs": {"a": 1},
        },
    ),
    (
        "/v1/responses",
        {
            "model": "llm",
            "input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}],
            "instructions": "i",
            "max_output_tokens": 4,
            "text": {"format": {"type": "text"}},
        },
    ),
    ("/v1/responses", {"model": "llm", "input": "hello", "stream": True}),
    (
        "/v1/embeddings",
        {"model": "embedding", "input": ["a", "b"], "encoding_format": "base64", "dimensions": 2},
    ),
    ("/v1/images/classifications", {"model": "vision", "input": [_URL, _URL], "top_k": 2}),
)
_FORM = {
    "model": "speech",
    "language": "en",
    "prompt": "p",
    "response_format": "verbose_json",
    "temperature": "0",
    "timestamp_granularities[]": "word",
    "stream": "false",
}
_HEADERS = ("x-request-id", "x-slo-ttft-ms", "cache-control", "traceparent", "authorization", "content-type")
_JSON = {"content-type": "application/json"}


@cache
def _app() -> App:
    return App()


def run(data: bytes) -> None:
    path, body, headers = request(Choices(data))
    judge(_app().post(path, body, headers), f"{path} {headers} {body[:2000]!r}")


def request(choices: Choices) -> tuple[str, bytes, dict[str, str]]:
    """Path, body and headers of one request."""
    headers = dict(_JSON)
    for _ in range(choices.pick((0, 0, 0, 1, 2))):
        headers[choices.pick(_HEADERS)] = text(choices).replace("\n", "")[:1000]
    if choices.chance(5):
        translate = choices.chance(3)
        form, kind = upload(choices)
        headers["content-type"] = headers.get("content-type", "") if choices.chance(20) else kind
        return f"/v1/audio/{'translations' if translate else 'transcriptions'}", form, headers
    path, valid = choices.pick(BODIES)
    kind = choices.integer(0, 9)
    if kind == 0:
        return path, choices.rest(), headers
    body = dumped(spoil(choices, valid))
    return path, spoil_bytes(choices, body) if kind == 1 else body, headers


def upload(choices: Choices) -> tuple[bytes, str]:
    """A multipart form with a recording, and its content type."""
    fields = {name: one for name, one in _FORM.items() if name in ("model",) or choices.chance(3)}
    if choices.chance(2):
        fields[choices.pick((*_FORM, text(choices)))] = text(choices)
    recording = RECORDINGS[choices.pick(tuple(RECORDINGS))]
    if choices.chance(2):
        recording = spoil_bytes(choices, recording)
    boundary = choices.pick(("b", "x" * 70, "b\r\n", ""))
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{one}\r\n'
        for name, one in fields.items()
    ]
    name = choices.pick(("file", "file", "file", "model", "other"))
    parts.append(f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="a.wav"\r\n\r\n')
    body = "".join(parts).encode("utf-8", "replace") + recording + f"\r\n--{boundary}--\r\n".encode()
    if choices.chance(6):
        body = spoil_bytes(choices, body)
    return body, f"multipart/form-data; boundary={boundary}".replace("\r\n", "")


def judge(reply: Reply, about: str) -> None:
    """Raises Broken where an answer is not one of ours: its status, or an error not told as OpenAI does."""
    if reply.status not in ALLOWED:
        raise Broken(f"status {reply.status}: {reply.body[:300]!r} to {about}")
    if b"Traceback" in reply.body or b'File "' in reply.body:
        raise Broken(f"a traceback: {reply.body[:300]!r} to {about}")
    if reply.status == 200:
        return
    error = json.loads(reply.body)["error"]
    if set(error) != {"message", "type", "param", "code"} or not error["message"]:
        raise Broken(f"no error of OpenAI's form: {reply.body[:300]!r} to {about}")
    if len(error["message"]) > 1000:
        raise Broken(f"an error of {len(error['message'])} characters: {error['message'][:200]} to {about}")
