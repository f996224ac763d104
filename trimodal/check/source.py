"""Finds where a field stands in a text file of protobuf: every field's line and column, and its comments.

`google.protobuf.text_format` reads values but forgets places, and stops at the first unknown field. This
reads names and nesting alone and leaves values to that parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<comment>\#[^\n]*)|(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
    r"""|(?P<word>[\w.+-]+)|(?P<mark>.)""",
    re.DOTALL,
)
_OPEN = {"{": "}", "<": ">"}
_DEEPEST = 50  # messages inside each other; a valid file has 8
_ESCAPE = re.compile(r"\\(?:[abfnrtv\\'\"?]|[0-7]{1,3}|x[0-9a-fA-F]|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})")
# `# trimodal: ignore[TRI030, TRI031]`: of this line, or, alone on its line, of the next.
_IGNORE = re.compile(r"#.*\btrimodal:\s*ignore\[([\w\s,]*)\]")


@dataclass(frozen=True)
class Place:
    """Where something stands: lines and columns count from 1."""

    line: int = 1
    column: int = 1


@dataclass
class Node:
    """One field as it is written: of a list in brackets there is one for each element."""

    name: str
    place: Place
    value: str = ""  # of a scalar, as written; empty for a message
    fields: list[Node] = field(default_factory=list)
    is_message: bool = False

    def find(self, path: Sequence[str | int]) -> Node:
        """The node at a path like ("input", 1, "dims"); the nearest one above it that is written down."""
        node, parts = self, list(path)
        while parts:
            name = parts.pop(0)
            index = parts.pop(0) if parts and isinstance(parts[0], int) else 0
            named = [child for child in node.fields if child.name == name]
            if not isinstance(index, int) or index >= len(named):
                return node
            node = named[index]
        return node


class Malformed(ValueError):
    """Brackets that do not match, or something that is no field."""

    def __init__(self, sentence: str, place: Place) -> None:
        super().__init__(sentence)
        self.place = place


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    place: Place


def _tokens(text: str) -> Iterator[_Token]:
    line, start = 1, 0
    for match in _TOKEN.finditer(text):
        kind, found = str(match.lastgroup), match.group()
        if kind not in ("space", "comment"):
            yield _Token(kind, found, Place(line, match.start() - start + 1))
        if lines := found.count("\n"):
            line += lines
            start = match.start() + found.rindex("\n") + 1


class _Reader:
    def __init__(self, text: str) -> None:
        self.tokens = list(_tokens(text))
        self.at = self.depth = 0

    @property
    def next(self) -> str:
        return self.tokens[self.at].text if self.at < len(self.tokens) else ""

    @property
    def place(self) -> Place:
        index = min(self.at, len(self.tokens) - 1)
        return self.tokens[index].place if self.tokens else Place()

    def take(self, text: str = "") -> _Token:
        if self.at >= len(self.tokens):
            raise Malformed(f"the file ends where {text or 'a value'} is expected", self.place)
        token = self.tokens[self.at]
        if text and token.text != text:
            raise Malformed(f"{text} is expected before {token.text}", token.place)
        self.at += 1
        return token

    def message(self, end: str) -> list[Node]:
        fields: list[Node] = []
        while self.next != end:
            if not self.next:
                raise Malformed(f"a {end} is missing at the end of the file", self.place)
            fields += self.field()
            while self.next in (",", ";"):
                self.take()
        return fields

    def field(self) -> list[Node]:
        token = self.take()
        if token.kind != "word":
            raise Malformed(f"{token.text} stands where a field's name is expected", token.place)
        if self.next == ":":
            self.take()
        if self.next != "[":
            return [self.value(token.text, token.place)]
        self.take("[")
        nodes: list[Node] = []
        while self.next != "]":
            nodes.append(self.value(token.text, self.place))
            if self.next != "]":
                self.take(",")
        self.take("]")
        return nodes or [Node(token.text, token.place, "[]")]

    def value(self, name: str, place: Place) -> Node:
        if self.next in _OPEN:
            end = _OPEN[self.take().text]
            self.depth += 1
            if self.depth > _DEEPEST:
                raise Malformed(f"more than {_DEEPEST} brackets inside each other", place)
            fields = self.message(end)
            self.depth -= 1
            self.take(end)
            return Node(name, place, fields=fields, is_message=True)
        token = self.take()
        if token.kind == "mark" and token.text not in "-":
            raise Malformed(f"{name} has no value: {token.text} follows", token.place)
        # The server's parser refuses unknown escapes, Python's does not.
        if token.kind == "text" and "\\" in _ESCAPE.sub("", token.text):
            raise Malformed(f"{name} has an unknown escape: write \\\\ for a backslash", token.place)
        value = token.text
        while self.at < len(self.tokens) and self.tokens[self.at].kind == "text" == token.kind:
            value += self.take().text  # strings beside each other are one
        if token.text == "-":
            value += self.take().text
        return Node(name, place, value)


def read_fields(text: str) -> Node:
    """The file as one message. Raises: Malformed."""
    if text.startswith("\ufeff"):
        raise Malformed("the file begins with a byte order mark: save it as UTF-8 without one", Place())
    reader = _Reader(text)
    root = Node("", Place(), is_message=True)
    while reader.next:
        root.fields += reader.field()
        while reader.next in (",", ";"):
            reader.take()
    return root


def ignored_rules(text: str) -> dict[int, frozenset[str]]:
    """Line → ids that a comment switches off there. `#` in a string is seen as a comment, too."""
    found: dict[int, set[str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if match := _IGNORE.search(line):
            alone = not line[: match.start()].strip()
            rules = {rule.strip() for rule in match[1].split(",") if rule.strip()}
            found.setdefault(number + alone, set()).update(rules)
    return {line: frozenset(rules) for line, rules in found.items()}
