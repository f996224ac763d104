"""What no request may look like: each is refused with its status, in OpenAI's shape, and harms no other."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

from tests.gateway.conftest import LIMIT_S, fake_triton
from trimodal.client.transports.fake import FakeTransport
from trimodal.gateway.keys import Key, add_key
from trimodal.gateway.server import GatewayServer
from trimodal.gateway.settings import GatewaySettings

CHAT = {"model": "llm", "messages": [{"role": "user", "content": "hi"}]}
COMPLETION = {"model": "llm", "prompt": "hi"}
EMBEDDING = {"model": "embedding", "input": "hi"}
RESPONSE = {"model": "llm", "input": "hi"}
PICTURE = "data:image/png;base64,AAAA"
LABELS = {"model": "vision", "input": PICTURE}
JSON = {"content-type": "application/json"}
PATHS = {"chat": "/v1/chat/completions", "text": "/v1/completions", "embed": "/v1/embeddings",
         "respond": "/v1/responses", "label": "/v1/images/classifications",
         "hear": "/v1/audio/transcriptions", "translate": "/v1/audio/translations"}  # fmt: skip


def wav(*values: float) -> bytes:
    file = io.BytesIO()
    samples = np.repeat(values or (0.0,), 1600).astype(np.float32)
    soundfile.write(file, samples, 16_000, "FLOAT", format="WAV")
    return file.getvalue()


def without_rate() -> bytes:
    """A file whose header says 0 Hz."""
    whole = wav()
    return whole[:24] + bytes(4) + whole[28:]


def user(*parts: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def sound(data: str, format: str = "wav") -> dict[str, object]:
    return {"type": "input_audio", "input_audio": {"data": data, "format": format}}


def image(*url: object) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": url[0]} if url else {}}


def nested(levels: int) -> dict[str, object]:
    schema: dict[str, object] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def form(**schema: object) -> dict[str, object]:
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def tool(**function: object) -> dict[str, object]:
    return {"tools": [{"type": "function", "function": function}]}


@dataclass(frozen=True)
class Bad:
    """A request to POST, how it is refused, and which field is named, if one is.

    Attributes:
        asked: Triton is asked first; nothing else reaches it.
        says: part of the message.
    """

    name: str
    where: str
    status: int
    param: str | None = None
    body: Any = None
    raw: bytes | None = None
    form: Any = None
    headers: Any = None
    asked: bool = False
    says: str = ""


def chats() -> Iterator[Bad]:
    changes: list[tuple[str, dict[str, object], str]] = [
        ("no messages", {"messages": []}, "messages"),
        ("messages of text", {"messages": "hi"}, "messages"),
        ("too many messages", {"messages": CHAT["messages"] * 1025}, "messages"),  # type: ignore[operator]
        ("unknown role", {"messages": [{"role": "pirate", "content": "hi"}]}, "messages[0].role"),
        ("content of a number", {"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ("no role", {"messages": [{"content": "hi"}]}, "messages[0].role"),
        ("empty model", {"model": ""}, "model"),
        ("long model", {"model": "m" * 257}, "model"),
        ("model of a number", {"model": 7}, "model"),
        ("stream of text", {"stream": "yes"}, "stream"),
        ("usage without a stream", {"stream_options": {"include_usage": True}}, "stream_options"),
        ("no choices", {"n": 0}, "n"),
        ("too many choices", {"n": 17}, "n"),
        ("half a choice", {"n": 1.5}, "n"),
        ("a choice of yes", {"n": True}, "n"),
        ("temperature of yes", {"temperature": True}, "temperature"),
        ("tokens of half a text", {"max_tokens": "7.5"}, "max_tokens"),
        ("temperature of no number", {"temperature": "nan"}, "temperature"),
        ("no tokens", {"max_tokens": 0}, "max_tokens"),
        ("negative tokens", {"max_completion_tokens": -1}, "max_completion_tokens"),
        ("tokens of text", {"max_tokens": "many"}, "max_tokens"),
        ("too hot", {"temperature": 2.1}, "temperature"),
        ("below zero", {"temperature": -0.1}, "temperature"),
        ("temperature of text", {"temperature": "hot"}, "temperature"),
        ("top_p of zero", {"top_p": 0}, "top_p"),
        ("top_p above one", {"top_p": 1.1}, "top_p"),
        ("negative top_k", {"top_k": -2}, "top_k"),
        ("min_p of one", {"min_p": 1}, "min_p"),
        ("presence", {"presence_penalty": 3}, "presence_penalty"),
        ("frequency", {"frequency_penalty": -3}, "frequency_penalty"),
        ("repetition", {"repetition_penalty": 0}, "repetition_penalty"),
        ("seed of text", {"seed": "a"}, "seed"),
        ("biases of text", {"logit_bias": {"50": "much"}}, "logit_bias.50"),
        ("fewer than no tokens", {"min_tokens": -1}, "min_tokens"),
        ("stops of text", {"stop_token_ids": ["a"]}, "stop_token_ids[0]"),
        ("a deep template", {"chat_template_kwargs": nested(200)}, "chat_template_kwargs"),
        ("21 probabilities", {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ("less than no probabilities", {"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ("a number of probabilities", {"logprobs": 2}, "logprobs"),
        ("probabilities of none", {"top_logprobs": 1}, "top_logprobs"),
        ("probabilities of no", {"top_logprobs": 2, "logprobs": False}, "top_logprobs"),
        ("unknown tools", {"tools": [{"type": "web"}]}, "tools[0].type"),
        ("a function of two words", tool(name="a b"), "tools[0].function.name"),
        ("a choice of no tools", {"tool_choice": "required"}, "tool_choice"),
        ("unknown form", {"response_format": {"type": "xml"}}, "response_format.type"),
        ("no form", {"response_format": {"type": "json_schema"}}, "response_format"),
        ("no schema", form(name="a"), "response_format.json_schema.schema"),
        ("a form of two words", form(name="a b", schema={}), "response_format.json_schema.name"),
        ("a strict form that is not", form(name="a", strict=True, schema={"type": "object"}),
         "response_format.json_schema"),
        ("a deep form", form(name="a", schema=nested(200)), "response_format.json_schema.schema"),
        ("a tool without its call", {"messages": [{"role": "tool", "content": "a"}]}, "messages[0]"),
        ("a user's call", {"messages": [{"role": "user", "content": "a", "tool_call_id": "b"}]},
         "messages[0]"),
        ("sound as an answer", {"modalities": ["audio"]}, "modalities"),
        ("unknown part", user({"type": "video"}), "messages[0].content[0]"),
        ("a picture elsewhere", user(image("http://10.0.0.1/a.png")), "messages[0].content[0].image_url.url"),
        ("a local file", user(image("file:///etc/passwd")), "messages[0].content[0].image_url.url"),
        ("a picture without an address", user(image()), "messages[0].content[0].image_url.url"),
        ("a picture of a number", user(image(7)), "messages[0].content[0].image_url.url"),
        ("broken base64", user(image("data:image/png;base64,@@@")), "messages[0].content[0].image_url.url"),
        ("odd base64", user(image("data:image/png;base64,AAAAA")), "messages[0].content[0].image_url.url"),
        ("two pictures", user(image(PICTURE), image(PICTURE)), "messages[0].content[1]"),
        ("broken sound", user(sound("@@@")), "messages[0].content[0].input_audio.data"),
        ("no sound", user(sound(base64.b64encode(b"RIFF").decode())), "messages[0]"),
        ("unknown sound", user(sound("AAAA", "midi")), "messages[0].content[0].input_audio.format"),
        ("a rate of zero", user(sound(base64.b64encode(without_rate()).decode())), "messages[0]"),
        ("two sounds", user(sound("AAAA"), sound("AAAA")), "messages[0].content[1]"),
    ]  # fmt: skip
    for name, change, param in changes:
        yield Bad(name, "chat", 400, param, {**CHAT, **change})
    for role in ("assistant", "system"):
        talk = {"messages": [{"role": role, "content": [image(PICTURE)]}]}
        yield Bad(f"a picture of the {role}", "chat", 400, "messages[0].content[0]", {**CHAT, **talk})
    talk = {"messages": [*user(image(PICTURE))["messages"], {"role": "assistant", "content": "x"}]}  # type: ignore[misc]
    says = "the last message must be the user's"
    yield Bad("an answer last", "chat", 400, "messages[1]", {**CHAT, **talk}, says=says)
    yield Bad("unknown model", "chat", 404, "model", {**CHAT, "model": "gpt-9"}, asked=True)
    yield Bad("a model that the key does not hold for", "chat", 403, None, CHAT, headers="narrow")


def others() -> Iterator[Bad]:
    changes: list[tuple[str, str, dict[str, object], dict[str, object], str | None]] = [
        ("no prompt", "text", COMPLETION, {"prompt": []}, "prompt"),
        ("prompt of negative ids", "text", COMPLETION, {"prompt": [1, -2]}, "prompt[0]"),
        ("prompt of no ids", "text", COMPLETION, {"prompt": [[1], []]}, "prompt[1]"),
        ("echo of ids", "text", COMPLETION, {"prompt": [1], "echo": True}, "echo"),
        ("many answers", "text", COMPLETION, {"prompt": ["a"] * 9, "n": 16}, "prompt"),
        ("many prompts", "text", COMPLETION, {"prompt": ["a"] * 129}, "prompt"),
        ("prompt of nothing", "text", COMPLETION, {"prompt": None}, "prompt"),
        ("suffix", "text", COMPLETION, {"suffix": "a"}, "suffix"),
        ("best of", "text", COMPLETION, {"best_of": 3}, "best_of"),
        ("21 probabilities of a text", "text", COMPLETION, {"logprobs": 21}, "logprobs"),
        ("probabilities of yes", "text", COMPLETION, {"logprobs": True}, "logprobs"),
        ("echo of text", "text", COMPLETION, {"echo": "a"}, "echo"),
        ("no text", "embed", EMBEDDING, {"input": ""}, "input"),
        ("no texts", "embed", EMBEDDING, {"input": []}, "input"),
        ("an empty text", "embed", EMBEDDING, {"input": ["a", ""]}, "input"),
        ("texts of ids", "embed", EMBEDDING, {"input": [[1]]}, None),
        ("unknown format", "embed", EMBEDDING, {"encoding_format": "hex"}, "encoding_format"),
        ("no dimensions", "embed", EMBEDDING, {"dimensions": 0}, "dimensions"),
        ("more dimensions", "embed", EMBEDDING, {"dimensions": 5}, "dimensions"),
        ("no picture", "label", LABELS, {"input": []}, "input"),
        ("a far picture", "label", LABELS, {"input": "https://example.com/a.png"}, "input[0]"),
        ("a picture of this machine", "label", LABELS, {"input": "file:///etc/passwd"}, "input[0]"),
        ("a picture of nothing", "label", LABELS, {"input": ""}, "input[0]"),
        ("a picture as it is", "label", LABELS, {"input": "data:image/png,abc"}, "input[0]"),
        ("broken picture", "label", LABELS, {"input": "data:;base64,@"}, "input[0]"),
        ("no labels", "label", LABELS, {"top_k": 0}, "top_k"),
    ]
    for name, where, good, change, param in changes:
        yield Bad(name, where, 400, param, {**good, **change}, asked=change == {"dimensions": 5})
    tiny = {**CHAT, **user({"type": "text", "text": "It is"}, image(PICTURE)), "continue_final_message": True}
    yield Bad("a picture to continue", "chat", 400, "continue_final_message", tiny)


TOOL_OF_RESPONSES = {"type": "function", "name": "f", "parameters": {}}
NAMED_OF_RESPONSES = {"type": "function", "name": "g"}
ALLOWED_OF_RESPONSES = {"type": "allowed_tools", "mode": "required", "tools": [NAMED_OF_RESPONSES]}


def responses() -> Iterator[Bad]:
    def pictured(**image: str) -> dict[str, object]:
        return {"input": [{"role": "user", "content": [{"type": "input_image", **image}]}]}

    changes: list[tuple[dict[str, object], str]] = [
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL_OF_RESPONSES], "tool_choice": {"type": "mcp"}}, "tool_choice"),
        ({"tools": [TOOL_OF_RESPONSES], "tool_choice": ALLOWED_OF_RESPONSES}, "tool_choice"),
        ({"tools": [{**TOOL_OF_RESPONSES, "name": "a b"}]}, "tools[0].name"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"metadata": {"a": "b" * 513}}, "metadata.a"),
        ({"input": []}, "input"),
        ({"input": [{"type": "reasoning"}]}, "input"),
        ({"input": [{"type": "web_search_call", "id": "ws_1"}]}, "input[0]"),
        ({"input": [{"type": "item_reference"}]}, "input[0].id"),
        ({"input": [{"type": "function_call_output", "output": "12"}]}, "input[0].call_id"),
        (pictured(image_url="a"), "input[0].content[0].image_url"),
        (pictured(image_url="http://a/b.png"), "input[0].content[0].image_url"),
        (pictured(file_id="file-1"), "input[0].content[0].file_id"),
        (pictured(), "input[0].content[0].image_url"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0]"),
        ({"input": [{"role": "robot", "content": "hi"}]}, "input[0].role"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": "hot"}, "temperature"),
    ]
    for number, (change, param) in enumerate(changes):
        for stream in (False, True):
            body = {**RESPONSE, **change, "stream": stream}
            yield Bad(f"response {number}, {stream}", "respond", 400, param, body)


def forms() -> Iterator[Bad]:
    speech, file = {"model": "speech"}, {"file": ("a.wav", wav())}
    recordings: list[tuple[str, bytes, str]] = [
        ("no recording", b"RIFFRIFF", "cannot be read as audio"),
        ("text", b"not audio at all" * 99, "cannot be read as audio"),
        ("an empty recording", b"", "empty"),
        ("half a header", wav()[:30], "audio"),
        ("a header alone", b"RIFF\x24\0\0\0WAVEfmt ", "audio"),
        ("no rate", without_rate(), ""),
        ("no numbers", wav(0.1, math.nan, -0.1), "no finite numbers"),
    ]
    for name, contents, says in recordings:
        upload = {"data": speech, "files": {"file": ("a.wav", contents)}}
        yield Bad(f"recording: {name}", "hear", 400, "file", form=upload, says=says)
    fields: list[tuple[str, dict[str, str], str]] = [
        ("unknown format of text", {"response_format": "doc"}, "response_format"),
        ("an empty model of speech", {"model": ""}, "model"),
        ("hot speech", {"temperature": "2"}, "temperature"),
        ("stream of maybe", {"stream": "maybe"}, "stream"),
        ("times of no words", {"timestamp_granularities[]": "word"}, "timestamp_granularities[]"),
        ("times of letters", {"response_format": "verbose_json", "timestamp_granularities[]": "letter"},
         "timestamp_granularities[]"),
    ]  # fmt: skip
    for name, more, param in fields:
        yield Bad(name, "hear", 400, param, form={"data": {**speech, **more}, "files": file})
    for field in ("language", "stream", "timestamp_granularities[]"):
        data = {**speech, field: "word"}
        yield Bad(f"translation: {field}", "translate", 400, field, form={"data": data, "files": file})
    yield Bad("no model of speech", "hear", 400, "model", form={"data": {}, "files": file})
    yield Bad("no file", "hear", 400, "other", form={"data": speech, "files": {"other": b"a"}})
    kind = {"content-type": "multipart/form-data; boundary=b"}
    part = b'--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
    yield Bad("a form that is cut", "hear", 400, raw=part + b"RIFF", headers=kind)
    yield Bad("a form without end", "hear", 400, raw=part + b"RIFF\r\n--b", headers=kind)
    yield Bad("a form of nothing", "hear", 400, raw=b"", headers=kind)
    yield Bad("a form without header", "hear", 400, raw=b"--b\r\nbroken", headers=kind)
    yield Bad("a form of another boundary", "hear", 400, raw=b"--x\r\nbroken--", headers=kind)
    yield Bad(
        "a form without boundary", "hear", 400, raw=b"--", headers={"content-type": "multipart/form-data"}
    )
    yield Bad("a form of JSON", "hear", 400, raw=b"{}", headers=JSON)


def bytes_and_headers() -> Iterator[Bad]:
    bodies = [
        ("nothing", b"", "is empty"), ("no JSON", b"hi", ""), ("a bracket", b"{", "not valid JSON"),
        ("half of it", b'{"model": "llm"', ""), ("a list", b"[]", ""), ("a number", b"7", ""),
        ("null", b"null", ""), ("no UTF-8", b'{"model": "\xff"}', ""), ("UTF-16", b"\xff\xfe", ""),
        ("infinity", b'{"model": "llm", "n": 1e999}', ""), ("a deep list", b"[" * 100_000, ""),
        ("no number", json.dumps({**CHAT, "temperature": math.nan}).encode(), "temperature"),
        ("a deep object", b'{"a":' * 30_000, ""),
        ("a deep value", b'{"model":"llm","messages":' + b"[" * 5000 + b"]" * 5000 + b"}", ""),
        ("a long number", b'{"model": "llm", "seed": ' + b"9" * 20_000 + b"}", ""),
        ("many keys", json.dumps({f"k{number}": 0 for number in range(5000)}).encode(), ""),
        ("too many keys", b'{"model":"llm"' + b',"":0' * 30_000 + b"}", ""),
        ("too many numbers", b'{"model":"llm","stop":[' + b"0," * 60_000 + b"0]}", ""),
        ("too many texts", b'{"model":"llm","stop":[' + b'"",' * 60_000 + b"0]}", ""),
    ]  # fmt: skip
    for name, raw, says in bodies:
        yield Bad(f"body: {name}", "chat", 400, raw=raw, headers=JSON, says=says)
    yield Bad("too large", "chat", 413, raw=b" " * 200_001, headers=JSON)
    yield Bad("compressed", "chat", 415, raw=b"", headers={**JSON, "content-encoding": "gzip"})
    for deadline in ("0", "-1", "soon", "", "1.5", "3600001", "9" * 30, "٣"):
        yield Bad(f"deadline {deadline}", "chat", 400, "x-slo-ttft-ms", CHAT,
                  headers={"x-slo-ttft-ms": deadline.encode()})  # fmt: skip


TABLE = [*chats(), *others(), *responses(), *forms(), *bytes_and_headers()]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str], FakeTransport]]:
    """URL, the two keys by name, and the models behind."""
    file = tmp_path_factory.mktemp("keys") / "keys.toml"
    keys = {
        "wide": add_key(file, Key(name="wide", max_streams=1)),
        "narrow": add_key(file, Key(name="narrow", models=("vision",))),
    }
    triton = fake_triton()
    server = GatewayServer(GatewaySettings(port=0, keys=file, max_body_bytes=200_000), lambda address: triton)
    url = server.listen()
    with server.serving():
        yield url, keys, triton


def test_the_table_is_long() -> None:
    assert len({bad.name for bad in TABLE}) == len(TABLE) >= 80


@pytest.mark.parametrize("bad", TABLE, ids=lambda bad: bad.name)
def test_it_is_refused(served: tuple[str, dict[str, str], FakeTransport], bad: Bad) -> None:
    url, keys, triton = served
    triton.requests.clear()
    key = keys["narrow"] if bad.headers == "narrow" else keys["wide"]
    headers: dict[str, Any] = {"authorization": f"Bearer {key}"}
    headers |= bad.headers if isinstance(bad.headers, dict) else {}
    with httpx.Client(base_url=url, timeout=LIMIT_S) as client:
        content = bad.form or ({"json": bad.body} if bad.raw is None else {"content": bad.raw})
        answer = client.post(PATHS[bad.where], headers=headers, **content)
        assert answer.status_code == bad.status, answer.text
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        assert len(error["message"]) < 1000
        assert bad.says in error["message"]
        assert "/tmp" not in error["message"]
        assert bad.param is None or error["param"] == bad.param, error
        assert bad.status != 400 or error["type"] == "invalid_request_error"
        assert bool(triton.requests) == bad.asked
        assert triton.functions["speech"].streams == {}, "no stream is left"  # type: ignore[union-attr]
        # Its key has one stream: a request that is still counted would refuse this one.
        good = client.post(PATHS["chat"], json=CHAT, headers={"authorization": f"Bearer {keys['wide']}"})
        assert good.status_code == 200, good.text
