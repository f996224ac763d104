"""Bad requests to `llm` over gRPC. Those over HTTP are in llm_http.py."""

from __future__ import annotations

import json
import struct

from tests.e2e.bad_input.wire import Row, Tensor, by_grpc, by_stream, texts

PROMPT = texts("text_input", "hello")


def prompt(*values: str | bytes, shape: list[int] | None = None) -> Tensor:
    return texts("text_input", *values, shape=shape)


def chat(text: str | bytes) -> Tensor:
    return texts("messages", text)


def message(role: object, content: object, **more: object) -> Tensor:
    return chat(json.dumps([{"role": role, "content": content, **more}]))


def ints(name: str, *values: int) -> Tensor:
    return Tensor(name, "INT32", [len(values)], struct.pack(f"<{len(values)}i", *values))


def floats(name: str, *values: float) -> Tensor:
    return Tensor(name, "FP32", [len(values)], struct.pack(f"<{len(values)}f", *values))


# Name, the tensors, and the sentence of ours that they must get.
REFUSED: list[tuple[str, list[Tensor], str]] = [
    ("1 MB prompt", [prompt("x" * 1_000_000)], "text_input has 1000000 bytes: at most 262144"),
    ("prompt beyond the budget", [prompt("x" * 501)], "tokens: max_prompt_tokens is 500"),
    ("beyond the KV pool", [prompt("x" * 400), ints("max_tokens", 1000)], "the KV pool holds 1024"),
    ("invalid UTF-8", [prompt(b"ab\xff\xfe")], "text_input is not valid UTF-8: byte 2"),
    ("surrogates in UTF-8", [prompt(b"\xed\xa0\x80")], "text_input is not valid UTF-8: byte 0"),
    ("max_tokens 0", [PROMPT, ints("max_tokens", 0)], "max_tokens is 0: .* between 1 and 1024"),
    ("temperature NaN", [PROMPT, floats("temperature", float("nan"))], "temperature is nan: .* 0 and 10"),
    (
        "prompt and messages",
        [PROMPT, message("user", "x")],
        "exactly one of text_input, .* text_input and messages are given",
    ),
    ("messages: 100,000 brackets", [chat("[" * 100_000)], "messages is nested too deeply"),
    (
        "messages: 5,000 digits",
        [chat("9" * 5_000)],
        "messages holds a number of more digits than can be read",
    ),
    (
        "messages: 1,025 entries",
        [chat(json.dumps([{"role": "user", "content": "x"}] * 1025))],
        "messages holds 1025 entries: at most 1024",
    ),
    (
        "messages: 100 kB as role",
        [message("x" * 99_999, "x")],
        r"messages\[0\].role is 'x{59}…: one of system",
    ),
    (
        "messages: lone surrogate",
        [message("user", "\ud800")],
        "messages holds a lone surrogate",
    ),
    (
        "messages: surrogate as key",
        [message("user", "x", **{"\ud800": "y"})],
        "messages holds a lone surrogate",
    ),
    ("messages: invalid UTF-8", [chat(b"[\xff]")], "messages is not valid UTF-8: byte 1"),
]

# What Triton itself refuses: a stream shows its sentence without a code.
STOPPED: list[tuple[str, list[Tensor], str]] = [
    ("wrong dtype", [Tensor("text_input", "INT32", [1], bytes(4))], "text_input"),
    ("wrong shape", [prompt("a", "b")], "text_input"),
    ("shape says 2, one is sent", [prompt("a", shape=[2])], "text_input"),
    ("negative dimension", [prompt("a", shape=[-1])], "text_input"),
    ("shape that overflows", [prompt("a", shape=[2**62, 2**62])], "text_input"),
    ("length beyond the bytes", [Tensor("text_input", "BYTES", [1], b"\xff\xff\xff\x7fa")], "text_input"),
    ("a string without bytes", [Tensor("text_input", "BYTES", [1], b"")], "text_input"),
    ("the same input twice", [PROMPT, PROMPT], "text_input"),
    ("unknown input", [PROMPT, texts("colour", "red")], "colour"),
    ("max_tokens as INT64", [PROMPT, Tensor("max_tokens", "INT64", [1], bytes(8))], "max_tokens"),
    ("max_tokens without a value", [PROMPT, ints("max_tokens")], "max_tokens"),
]

ELSEWHERE = [
    ("unknown output", by_stream("llm", PROMPT, outputs=["colour"]), "colour"),
    ("10,000 unknown outputs", by_stream("llm", PROMPT, outputs=["colour"] * 10_000), "colour"),
    ("unknown model", by_stream("lim", PROMPT), "unknown model: 'lim'"),
    ("unknown version", by_stream("llm", PROMPT, version="9"), "version 9"),
    ("a word as version", by_stream("llm", PROMPT, version="new"), "version"),
]

ROWS = [
    *(
        Row("llm", name, "gRPC stream", by_stream("llm", *t), "INVALID_ARG", told)
        for name, t, told in REFUSED
    ),
    *(
        Row("llm", name, "gRPC stream", by_stream("llm", *tensors), "stream", told, own=False)
        for name, tensors, told in STOPPED
    ),
    *(Row("llm", name, "gRPC stream", send, "stream", told, own=False) for name, send, told in ELSEWHERE),
    Row("llm", "unary call", "gRPC", by_grpc("llm", PROMPT), "UNIMPLEMENTED", "decoupled", own=False),
    Row("llm", "NUL in the prompt", "gRPC stream", by_stream("llm", prompt("a\0b")), "OK"),
    Row(
        "llm",
        "an output 10,000 times",
        "gRPC stream",
        by_stream("llm", PROMPT, outputs=["text_output"] * 10_000),
        "OK",
    ),
]
