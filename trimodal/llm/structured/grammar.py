"""Collects the rules of a grammar in the EBNF of xgrammar, which is behind the engines' constrained decoding.

Every grammar is made here and none by a client: OpenVINO GenAI compiles them within a step of the whole
batch, and one that it cannot read ends the engine with all its requests.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

SEPARATOR = '"," " "?'
MOST_REPEATS = 4096
"""The longest that a bounded string or list is let grow to: a schema that allows more is still kept."""

_ESCAPE = r'"\\" (["\\/bfnrt] | "u" ([0-9a-cA-CefEF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2}))'
# Where the bytes of UTF-8 begin another way. A range over one of these edges lets xgrammar (in OpenVINO GenAI
# 2026.4) take bytes that are no character: C1 BA for a "z", ED before any byte.
_EDGES = (0x80, 0x800, 0x1000, 0xD000, 0xE000, 0x10000, 0x40000, 0x100000)
Range = tuple[int, int]
"""The first and the last of some characters."""


def characters(ranges: Iterable[Range]) -> str:
    """A class of characters; all in it are written as they are."""
    parts = []
    for first, last in ranges:
        starts = [first, *(edge for edge in _EDGES if first < edge <= last)]
        ends = [*(start - 1 for start in starts[1:]), last]
        parts += [f"{_code(start)}-{_code(end)}" for start, end in zip(starts, ends, strict=True)]
    return f"[{''.join(parts)}]"


def _code(code: int) -> str:
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


# All that stands unescaped in a JSON string; half a surrogate pair is no character.
PLAIN: tuple[Range, ...] = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, 0x10FFFF))
_PLAIN = characters(PLAIN)
_FREE = {
    "string": f'"\\"" {_PLAIN}* (escape {_PLAIN}*)* "\\""',
    "number": '"-"? ("0" | [1-9] [0-9]{0,14}) ("." [0-9]{1,10})?',
    "integer": '"-"? ("0" | [1-9] [0-9]{0,14})',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "object": f'"{{" (pair ({SEPARATOR} pair)*)? "}}"',
    "array": f'"[" (value ({SEPARATOR} value)*)? "]"',
}
_SHARED = _FREE | {
    "escape": _ESCAPE,
    "character": f"{_PLAIN} | escape",
    "pair": 'string ":" " "? value',
    "value": "string | number | boolean | null | object | array",
}
_NEEDS = {
    "string": ("escape",), "character": ("escape",), "pair": ("string", "value"), "object": ("pair",),
    "array": ("value",), "value": ("string", "number", "boolean", "null", "object", "array"),
}  # fmt: skip
# Many repeats are made of lots: 256 in one cost xgrammar 60 ms a token, in lots of 16 about 3.
_LOT = 16
_MOST_BEGINNINGS = 64


class Grammar:
    """Rules by name; the same rule is kept once."""

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self.size = 0  # bytes that its text has at least, of rules of its own

    def text(self, root: str) -> str:
        """The whole grammar, of which an answer is one `root` (an expression)."""
        lines = [f"root ::= {root}", *(f"{name} ::= {body}" for name, body in self._rules.items())]
        return "\n".join(lines) + "\n"

    def shared(self, name: str) -> str:
        """One of the rules of JSON itself: a type's, "value", "pair" or "character"."""
        if name not in self._rules:
            self._rules[name] = _SHARED[name]
            for needed in _NEEDS.get(name, ()):
                self.shared(needed)
        return name

    def rule(self, body: str) -> str:
        """The name of a rule with this body."""
        if body in self._rules:
            return body
        name = self._names.get(body)
        if name is None:
            name = self._names[body] = f"r{len(self._names) + 1}"
            self._rules[name] = body
            self.size += len(body)
        return name

    def recursive(self, make: Callable[[str], str]) -> str:
        """The name of a rule whose body, which `make` returns, may use that name."""
        name = f"r{len(self._names) + 1}"
        self._names[f" {name}"] = name  # no body begins with a blank
        self._rules[name] = make(name)
        self.size += len(self._rules[name])
        return name

    def repeated(self, name: str, least: int, most: int) -> str:
        """An expression of `least` to `most` times the rule `name`."""
        parts = []
        for size, lot in reversed(list(self._lots(name, least))):
            if count := least // size % _LOT:
                parts.append(times(lot, count, count))
        if spare := most - least:
            parts.append(self._up_to(name, spare))
        return " ".join(parts) or '""'

    def _up_to(self, name: str, most: int) -> str:
        """An expression of at most so many times: whole lots, then what is less than one."""
        size, lot = list(self._lots(name, most))[-1]
        if size == 1:
            return times(lot, 0, most)
        count, rest = divmod(most, size)
        full = times(lot, count, count) + (f" {self._up_to(name, rest)}" if rest else "")
        fewer = f"{times(lot, 0, count - 1)} " if count > 1 else ""
        less = self.rule(self._up_to(name, size - 1))
        return self.rule(f"{fewer}{less} | {full}")

    def _lots(self, name: str, most: int) -> Iterator[tuple[int, str]]:
        """Sizes and names of the rules for 1, 16, 256 … times `name`, up to the largest within `most`."""
        size = 1
        yield size, name
        while size * _LOT <= most:
            size *= _LOT
            name = self.rule(times(name, _LOT, _LOT))
            yield size, name


def times(name: str, least: int, most: int) -> str:
    if least == most:
        return name if most == 1 else f"{name}{{{most}}}"
    return f"{name}{{{least},{most}}}"


# xgrammar 0.2 prints a grammar and reads that again: "\u00DFe" becomes "\xdfe", which is one other character.
_SWALLOWED = re.compile(r"(?<=[\x00-\x1F\x7F-\xFF])(?=[0-9A-Fa-f])")


def literal(text: str) -> str:
    """An expression of exactly this text."""
    terminals = [f'"{"".join(map(_escaped, part))}"' for part in _SWALLOWED.split(text)]
    return terminals[0] if len(terminals) == 1 else f"({' '.join(terminals)})"


def one_text(texts: Iterable[str], depth: int = 0) -> str:
    """An expression of one of these texts, each beginning written once.

    Of alternatives that begin alike xgrammar (in OpenVINO GenAI 2026.4) makes more than there are: of "aa",
    "b", "ba" and "bb" also "baa".

    Raises:
        ValueError: too many begin with each other.
    """
    if depth > _MOST_BEGINNINGS:
        raise ValueError(f"holds more than {_MOST_BEGINNINGS} texts that begin with each other")
    different = sorted(set(texts))
    if len(different) == 1:
        return literal(different[0])
    start = len(os.path.commonprefix([different[0], different[-1]]))
    groups = groupby((text[start:] for text in different), key=lambda text: text[:1])
    rest = f"({' | '.join(one_text(group, depth + 1) for _, group in groups)})"
    return f"{literal(different[0][:start])} {rest}" if start else rest


def json_text(value: object) -> str:
    """This value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def one_of(expressions: Sequence[str]) -> str:
    """An expression: any of these."""
    return expressions[0] if len(expressions) == 1 else f"({' | '.join(expressions)})"


def _escaped(character: str) -> str:
    if character in '"\\' or not character.isprintable() or ord(character) > 0x7E:
        return _code(ord(character))
    return character
