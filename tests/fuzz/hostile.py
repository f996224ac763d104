"""Makes what a careless or hostile client might send: texts, numbers, JSON, and valid values spoilt."""

from __future__ import annotations

import copy
import json
from typing import Any

from tests.fuzz.choices import Choices

TEXTS = (
    *("", " ", "\0", "a", "word", "\ud800", "\udfff\ud800", "\ufeff", "e\u0301" * 40, "\u202e", "😀"),
    *("日本語", "NaN", "Infinity", "-1", "0", "1e999", "9" * 400, "9" * 5000, "٣", "true", "null", "None"),
    "none",
    *("[" * 100, "[" * 3000, '{"a":' * 200, "'", '"', "\\", "%s%n", "{}", "{0}", "$ref", "#", "#/", "../.."),
    *("a\nb", "data:;base64,", "data:image/png;base64,AAAA", "<tool_call>", "</tool_call>", "<|im_end|>"),
    *("x" * 300, "x" * 70_000, "\x1b[2J", "CON", "auto", "required", "json_object", "root", "item_1"),
    *("event_1", "fr", "xx"),
)
INTEGERS = (
    *(0, 1, -1, 2, 255, 256, -128, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63)),
)
NUMBERS = (
    *INTEGERS,
    *(10**30, 10**400, 0.5, -0.0, 1e-320, 1e-7, 1e308, -1e308, float("nan"), float("inf"), 0.1),
)
NAMES = (
    *("type", "name", "model", "role", "content", "stream", "n", "text", "id", "seed", "stop", "schema"),
    "tenant",
)
_MOST_DEPTH = 6


def text(choices: Choices) -> str:
    """A hostile text, or one of the input's own bytes."""
    kind = choices.integer(0, 3)
    if kind == 0:
        return choices.bytes(choices.integer(0, 40)).decode("utf-8", "replace")
    if kind == 1:
        return choices.pick(NAMES)
    return choices.pick(TEXTS)


def value(choices: Choices, depth: int = 0) -> Any:
    """Any JSON value; NaN, infinities and lone surrogates too."""
    kind = choices.integer(0, 9)
    if kind <= 2:
        return text(choices)
    if kind <= 4:
        return choices.pick(NUMBERS)
    if kind == 5:
        return choices.pick((True, False))
    if kind == 6 or depth >= _MOST_DEPTH:
        return None
    if kind == 7:
        return [value(choices, depth + 1) for _ in range(choices.integer(0, 4))]
    if kind == 8:
        return {text(choices): value(choices, depth + 1) for _ in range(choices.integer(0, 4))}
    return nested(choices.pick((10, 70, 500)), choices.pick(("list", "dict")))


def nested(depth: int, kind: str) -> Any:
    """A list or an object within another, so many levels deep."""
    made: Any = 1
    for _ in range(depth):
        made = [made] if kind == "list" else {"a": made}
    return made


def spoil(choices: Choices, valid: Any, places: int | None = None) -> Any:
    """A copy of a JSON value that is changed at one to three places: values, keys, order, nesting."""
    made = {"": copy.deepcopy(valid)}
    for _ in range(places or choices.integer(1, 3)):
        _change(choices, made)
    return made.get("")


def _change(choices: Choices, top: dict[str, Any]) -> None:
    """Walks down to some place and changes it."""
    at: Any = top
    key: Any = ""
    while isinstance(at[key], dict | list) and at[key] and not choices.chance(4):
        at = at[key]
        key = choices.pick(list(at)) if isinstance(at, dict) else choices.integer(0, len(at) - 1)
    kind = choices.integer(0, 9)
    if kind == 0 and at is not top:
        del at[key]
    elif kind == 1:
        at[key] = [at[key]]
    elif kind == 2:
        at[key] = {text(choices): at[key]}
    elif kind == 3 and isinstance(at, dict) and at is not top:
        at[text(choices)] = at[key]
    elif kind == 4 and isinstance(at, list):
        at.extend([at[key]] * choices.pick((1, 3, 40)))
    elif kind == 5:
        at[key] = choices.pick(NUMBERS)
    elif kind == 6:
        at[key] = text(choices)
    elif kind == 7:
        at[key] = None
    elif kind == 8 and isinstance(at[key], int | float) and not isinstance(at[key], bool):
        at[key] = at[key] * choices.pick((-1, 2, 1000)) + choices.pick((0, 1, -1))
    else:
        at[key] = value(choices)
    if at is top and "" not in top:
        top[""] = None


def spoil_bytes(choices: Choices, valid: bytes) -> bytes:
    """A copy of some bytes that is changed at one to three places: flipped, cut, doubled, put in."""
    made = bytearray(valid)
    for _ in range(choices.integer(1, 3)):
        at = choices.integer(0, max(0, len(made) - 1))
        kind = choices.integer(0, 5)
        if kind == 0 and made:
            made[at] ^= 1 << choices.integer(0, 7)
        elif kind == 1:
            del made[at:]
        elif kind == 2:
            del made[at : at + choices.integer(1, 64)]
        elif kind == 3:
            made[at:at] = made[at : at + choices.integer(1, 64)] * choices.pick((1, 2, 30))
        elif kind == 4:
            made[at:at] = choices.bytes(choices.integer(1, 16))
        elif made:
            patch = choices.pick((b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80", b"\xff"))
            made[at : at + len(patch)] = patch
    return bytes(made)


def dumped(made: Any) -> bytes:
    """JSON as a client may write it: NaN and lone surrogates as they come, within Python's own bounds."""
    try:
        return json.dumps(made).encode()
    except (ValueError, RecursionError):  # an integer of more digits than Python writes
        return b'{"a": ' + b"9" * 10_000 + b"}"
