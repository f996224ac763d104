"""Forms of an answer (response_format, tools) that become a grammar, and chats with calls in them."""

from __future__ import annotations

import json

from tests.fuzz.choices import Choices
from tests.fuzz.hostile import dumped, spoil, text, value
from tests.fuzz.targets.promise import Broken, promise
from trimodal.errors import InvalidArgument
from trimodal.llm.request.messages import read_messages
from trimodal.llm.structured.call_text import as_plain_chat
from trimodal.llm.structured.constraint import read_form
from trimodal.llm.structured.tools import read_tools
from trimodal.llm.tokenizer import ByteTokenizer

MOST_BYTES = 65_536
SCHEMA = {
    "type": "object",
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": []}},
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 300},
        "age": {"type": "integer", "minimum": -5, "exclusiveMaximum": 1200},
        "score": {"type": ["number", "null"], "exclusiveMinimum": -0.5, "maximum": 12.25},
        "kind": {"enum": ["a", 1, None, {"b": [True]}]},
        "day": {"type": "string", "format": "date-time"},
        "list": {"type": "array", "items": {"$ref": "#/$defs/node"}, "minItems": 1, "maxItems": 20},
        "pair": {"type": "array", "prefixItems": [{"const": 1.5}, {"type": "boolean"}], "items": False},
        "any": {"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": {"type": "null"}}]},
        "one": {"oneOf": [{"type": "string"}, {"allOf": [{"type": "integer"}]}]},
    },
    "required": ["name", "kind"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}
TOOLS = [
    {"type": "function", "function": {"name": "find", "description": "d", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "stop"}},
]
CALL = {"id": "1", "type": "function", "function": {"name": "find", "arguments": '{"name": "é"}'}}
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "naïve 😀"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "name": "find", "content": "none"},
]


def run(data: bytes) -> None:
    choices = Choices(data)
    kind = choices.integer(0, 4)
    with promise(InvalidArgument):
        if kind == 0:
            _grammar(choices.rest().decode("utf-8", "replace"), None, None)
        elif kind == 1:
            _grammar(json_text(choices, FORMAT), None, None)
        elif kind == 2:
            schema = value(choices)
            _grammar(dumped({"type": "json_schema", "json_schema": {"schema": schema}}).decode(), None, None)
        elif kind == 3:
            choice = choices.pick((None, "auto", "required", "none", "", text(choices)))
            _grammar(None, json_text(choices, TOOLS), choice)
        else:
            messages = read_messages(json_text(choices, CHAT))
            ByteTokenizer().render(as_plain_chat(messages or (), ())).encode()


def json_text(choices: Choices, valid: object) -> str:
    """A valid value's JSON, spoilt; what has a "$ref" may get another one."""
    made = dumped(spoil(choices, valid)).decode()
    if choices.chance(3):
        made = made.replace('"#/$defs/node"', json.dumps(f"#/{text(choices)}/{text(choices)}"), 1)
    return made


def _grammar(response_format: str | None, tools: str | None, choice: str | None) -> None:
    made = read_form(response_format, read_tools(tools, choice, None), MOST_BYTES).grammar
    made.encode()
    if len(made) > MOST_BYTES:
        raise Broken(f"a grammar of {len(made)} bytes")
    lines = made.splitlines()
    names = {line.partition(" ::= ")[0] for line in lines}
    if made and (not lines[0].startswith("root ::= ") or len(names) != len(lines)):
        raise Broken(f"no grammar of one rule a line: {made[:300]!r}")
