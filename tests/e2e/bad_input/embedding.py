"""Bad requests to `embedding`: texts and tensors over gRPC and HTTP, and lies in the binary extension."""

from __future__ import annotations

from tests.e2e.bad_input.wire import Row, Tensor, by_binary, by_both, by_json, texts

# Name, text, and the sentence that follows "text_input".
TEXTS = [
    ("empty text", b"", ": empty; at least one word"),
    ("blanks", b" \n\t", ": empty; at least one word"),
    ("invalid UTF-8", b"a\xff", " is not valid UTF-8: byte 1"),
    ("too long", b"x" * 32_769, ": 32769 bytes; at most 32768"),
]


def text(*values: str | bytes, shape: list[int] | None = None) -> Tensor:
    return texts("text_input", *values, shape=shape or [len(values), 1])


NUMBERS = Tensor("text_input", "INT64", [1, 1], bytes(8))
TENSORS = [
    *(
        row
        for name, data, told in TEXTS
        for row in by_both("embedding", name, text(data), f"text_input{told}")
    ),
    *by_both("embedding", "one bad text of two", text("a", ""), r"text_input\[1\]: empty"),
    *by_both("embedding", "33 texts", text(*"x" * 33), "batch-size must be <= 32", own=False),
    *by_both("embedding", "wrong dtype", NUMBERS, "'text_input' data-type is 'INT64'", own=False),
    *by_both(
        "embedding", "two columns", text("a", "b", shape=[1, 2]), "shape for input 'text_input'", own=False
    ),
]


def infer(shape: object, data: object, **more: object) -> dict[str, object]:
    given = {"name": "text_input", "datatype": "BYTES", "shape": shape, "data": data, **more}
    return {"inputs": [given]}


REGION = {"shared_memory_region": "x", "shared_memory_byte_size": 9}
JSON = [
    ("no inputs", {"inputs": []}, "400", r"missing required input\(s\) \['text_input'\]"),
    ("no key inputs", {}, "500", "Unable to parse 'inputs'"),
    ("shape that overflows", infer([2**62, 2**62], ["x"]), "400", "shape for input 'text_input'"),
    ("negative dimension", infer([-1, 1], ["x"]), "500", "Unable to parse 'shape'"),
    ("a number for a text", infer([1, 1], [5]), "500", "JSON non-string as string"),
    ("unknown datatype", infer([1, 1], ["x"], datatype="TEXT"), "400", "datatype for input text_input"),
    ("10,000 outputs", {**infer([1, 1], ["x"]), "outputs": [{"name": "colour"}] * 10_000}, "400", "'colour'"),
    ("data and shared memory", infer([1, 1], ["x"], parameters=REGION), "400", "only one of the following"),
    ("malformed JSON", b'{"inputs": [', "500", "failed to parse the request JSON"),
]
BINARY = [
    (
        "JSON header beyond the body",
        by_binary("embedding", text("x"), header_length=10_000_000),
        "400",
        "range",
    ),
    ("JSON header of −5 bytes", by_binary("embedding", text("x"), header_length=-5), "400", "range"),
    ("JSON header cut short", by_binary("embedding", text("x"), header_length=10), "500", "failed to parse"),
    (
        "tensor beyond the body",
        by_binary("embedding", text("x"), text_input=5_000_000),
        "400",
        "'text_input'",
    ),
    ("tensor of −1 bytes", by_binary("embedding", text("x"), text_input=-1), "500", "'binary_data_size'"),
    ("tensor shorter than the body", by_binary("embedding", text("x"), text_input=2), "400", "input data"),
]

INFER = "/v2/models/embedding/infer"
ROWS = [
    *TENSORS,
    *(
        Row("embedding", name, "HTTP JSON", by_json(INFER, body), *rest, own=False)
        for name, body, *rest in JSON
    ),
    *(Row("embedding", name, "HTTP binary", send, *rest, own=False) for name, send, *rest in BINARY),
]
