"""Bad requests to `llm` over HTTP. Those over gRPC are in llm.py."""

from __future__ import annotations

from tests.e2e.bad_input.wire import Row, Send, by_binary, by_json, texts

STREAM = "/v2/models/llm/generate_stream"


def sse(**body: object) -> Send:
    return by_json(STREAM, {"text_input": "hello", **body})


def raw(body: bytes) -> Send:
    return by_json(STREAM, body)


# Name, the request, and the sentence of ours that it must get.
REFUSED = [
    ("max_tokens 0", sse(max_tokens=0), "max_tokens is 0: .* between 1 and 1024"),
    # A number beyond INT32 wraps around in Triton's reader; what is left of it is refused.
    ("max_tokens 10¹²", sse(max_tokens=10**12), "max_tokens is -727379968: .* between 1 and 1024"),
    ("temperature NaN", raw(b'{"text_input": "x", "temperature": NaN}'), "temperature is nan: .* 0 and 10"),
    ("invalid UTF-8", raw(b'{"text_input": "\xff"}'), "text_input is not valid UTF-8: byte 0"),
    ("unknown parameter", sse(max_token=5), "unknown parameter 'max_token'"),
    ("1 MB prompt", sse(text_input="x" * 1_000_000), "text_input has 1000000 bytes: at most 262144"),
]

# What Triton's own reading of the JSON refuses; some of it with a 500, though the request is to blame.
NUMBER = "JSON non-(un)?signed-integer"
STOPPED = [
    ("max_tokens 1.5", sse(max_tokens=1.5), "500", NUMBER),
    ("max_tokens as text", sse(max_tokens="many"), "500", NUMBER),
    ("seed 2⁶⁴", sse(seed=2**64), "500", NUMBER),
    ("text_input is an object", sse(text_input={"a": 1}), "500", "JSON non-string as string"),
    ("two prompts", sse(text_input=["a", "b"]), "400", "can not convert input 'text_input'"),
    ("messages not as text", by_json(STREAM, {"messages": [{}]}), "500", "JSON non-string as string"),
    ("lone surrogate", raw(b'{"text_input": "\\ud800"}'), "500", "surrogate pair in string is invalid"),
    ("malformed JSON", raw(b'{"text_input": hello}'), "500", "failed to parse the request JSON"),
    ("empty body", raw(b""), "500", "The document is empty"),
    ("a list", raw(b"[]"), "500", "non-object"),
    # Not more: Triton 2.51 reads nested JSON by recursion, and 150,000 levels overflow a stack of 8 MB.
    ("50,000 brackets", raw(b'{"text_input": ' + b"[" * 50_000), "500", "failed to parse the request JSON"),
    ("unknown model", by_json("/v2/models/lim/generate_stream", {"text_input": "x"}), "404", "model: 'lim'"),
    (
        "unknown version",
        by_json("/v2/models/llm/versions/9/generate_stream", {"text_input": "x"}),
        "404",
        "version 9 is not found",
    ),
]
PROMPT = {"text_input": "x", "max_tokens": 5}
INFER = {"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["x"]}]}

ROWS = [
    *(Row("llm", name, "HTTP generate_stream", send, "400", told) for name, send, told in REFUSED),
    *(Row("llm", name, "HTTP generate_stream", send, *rest, own=False) for name, send, *rest in STOPPED),
    *(
        Row("llm", name, transport, send, status, told, own=False)
        for name, transport, send, status, told in [
            # Triton sends the status before it knows that more than one response comes.
            ("generate", "HTTP", by_json("/v2/models/llm/generate", PROMPT), "200", "exactly 1 response"),
            ("infer", "HTTP JSON", by_json("/v2/models/llm/infer", INFER), "501", "decoupled"),
            ("infer", "HTTP binary", by_binary("llm", texts("text_input", b"\xff")), "501", "decoupled"),
        ]
    ),
    Row("llm", "NUL in the prompt", "HTTP generate_stream", sse(text_input="a\0b"), "200"),
    Row(
        "llm",
        "another content type",
        "HTTP generate_stream",
        by_json(STREAM, PROMPT, Content_Type="image/png"),
        "200",
    ),
]
