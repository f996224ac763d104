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
    re.DOTALL | re.ASCII,  # as the server's parser: of other letters and blanks it takes none
)
# What Python's parser takes for a number, and the server's does not.
_NO_NUMBER = re.compile(r"\+|-?\d\w*_")
_OPEN = {"{": "}", "<": ">"}
_DEEPEST = 50  # messages inside each other; a valid file has 8
_ESCAPE = re.compile(r"\\(?:[abfnrtv\\'\"?]|[0-7]{1,3}|x[0-9a-fA-F]|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})")
# `# trimodal: ignore[TRI030, TRI031]`: of this line, or, alone on its line, of the next.
_IGNORE = re.compile(r"#.*\btrimodal:\s*ignore\[([\w\s,]*)\]")


@dataclass(frozen=True)
class SourcePosition:
    """Where something stands: lines and columns count from 1."""

    line: int = 1
    column: int = 1


@dataclass
class Node:
    """One field as it is written: of a list in brackets there is one for each element.

    Attributes:
        value: of a scalar, as written; empty for a message.
        start, end: offsets of its own value, of a message with its brackets.
    """

    name: str
    position: SourcePosition
    value: str = ""
    fields: list[Node] = field(default_factory=list)
    is_message: bool = False
    start: int = 0
    end: int = 0

    def named(self, name: str) -> list[Node]:
        return [child for child in self.fields if child.name == name]

    def find(self, path: Sequence[str | int]) -> Node:
        """The node at a path like ("input", 1, "dims"); the nearest one above it that is written down."""
        node, parts = self, list(path)
        while parts:
            named = node.named(str(parts.pop(0)))
            index = parts.pop(0) if parts and isinstance(parts[0], int) else 0
            if not isinstance(index, int) or index >= len(named):
                return node
            node = named[index]
        return node


class Malformed(ValueError):
    """Brackets that do not match, or something that is no field."""

    def __init__(self, sentence: str, position: SourcePosition) -> None:
        super().__init__(sentence)
        self.position = position


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    position: SourcePosition
    start: int
    end: int


def _tokens(text: str) -> Iterator[_Token]:
    line, start = 1, 0
    for match in _TOKEN.finditer(text):
        kind, found = str(match.lastgroup), match.group()
        if kind not in ("space", "comment"):
            yield _Token(kind, found, SourcePosition(line, match.start() - start + 1), *match.span())
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
    def position(self) -> SourcePosition:
        index = min(self.at, len(self.tokens) - 1)
        return self.tokens[index].position if self.tokens else SourcePosition()

    def take(self, text: str = "") -> _Token:
        if self.at >= len(self.tokens):
            raise Malformed(f"the file ends where {text or 'a value'} is expected", self.position)
        token = self.tokens[self.at]
        if text and token.text != text:
            raise Malformed(f"{text} is expected before {token.text}", token.position)
        self.at += 1
        return token

    def message(self, end: str) -> list[Node]:
        """Fields up to the closing bracket, or, without one, up to the end of the text."""
        fields: list[Node] = []
        while self.next != end:
            if not self.next:
                raise Malformed(f"a {end} is missing at the end of the file", self.position)
            fields += self.field()
        return fields

    def field(self) -> list[Node]:
        name = self.take()
        if name.kind != "word":
            raise Malformed(f"{_shown(name.text)} stands where a field's name is expected", name.position)
        if self.next == ":":
            self.take()
        if self.next == "[":
            start = self.take().start
            nodes: list[Node] = []
            while self.next != "]":
                nodes.append(self.value(name.text, self.position))
                if self.next != "]":
                    self.take(",")
            end = self.take("]").end
            nodes = nodes or [Node(name.text, name.position, "[]", start=start, end=end)]
        else:
            nodes = [self.value(name.text, name.position)]
        while self.next in (",", ";"):
            self.take()
        return nodes

    def value(self, name: str, position: SourcePosition) -> Node:
        token = self.take()
        if token.text in _OPEN:
            self.depth += 1
            if self.depth > _DEEPEST:
                raise Malformed(f"more than {_DEEPEST} brackets inside each other", position)
            fields = self.message(_OPEN[token.text])
            self.depth -= 1
            closing = self.take(_OPEN[token.text])
            return Node(name, position, "", fields, True, token.start, closing.end)
        if token.kind == "mark":
            raise Malformed(f"{name} has no value: {_shown(token.text)} follows", token.position)
        if token.kind == "word" and _NO_NUMBER.match(token.text):
            raise Malformed(f"{name}: {token.text} is no number that the server reads", token.position)
        # The server's parser refuses unknown escapes, Python's does not.
        if token.kind == "text" and "\\" in _ESCAPE.sub("", token.text):
            raise Malformed(f"{name} has an unknown escape: write \\\\ for a backslash", token.position)
        value, last = token.text, token
        while self.at < len(self.tokens) and self.tokens[self.at].kind == "text" == token.kind:
            last = self.take()  # strings beside each other are one
            value += last.text
        if token.text == "-":
            last = self.take()
            value += last.text
        return Node(name, position, value, start=token.start, end=last.end)


def _shown(mark: str) -> str:
    """A mark as a message has it: blanks of other kinds, as web pages have them, cannot be seen."""
    return mark if mark.isprintable() and not mark.isspace() else f"U+{ord(mark[0]):04X}"


def read_fields(text: str) -> Node:
    """The file as one message. Raises: Malformed."""
    if text.startswith("\ufeff"):
        raise Malformed(
            "the file begins with a byte order mark: save it as UTF-8 without one", SourcePosition()
        )
    before, nul, _ = text.partition("\0")
    if nul:  # also in a comment
        line = before.rpartition("\n")[2]
        raise Malformed("U+0000 ends the file", SourcePosition(1 + before.count("\n"), 1 + len(line)))
    fields = _Reader(text).message("")
    return Node("", SourcePosition(), "", fields, True, -1, len(text) + 1)


def ignored_rules(text: str) -> dict[int, frozenset[str]]:
    """Line → ids that a comment switches off there. `#` in a string is seen as a comment, too."""
    found: dict[int, set[str]] = {}
    for number, line in enumerate(text.split("\n"), 1):  # a form feed ends none, nor does it for the parsers
        if match := _IGNORE.search(line):
            alone = not line[: match.start()].strip()
            rules = {rule.strip() for rule in match[1].split(",") if rule.strip()}
            found.setdefault(number + alone, set()).update(rules)
    return {line: frozenset(rules) for line, rules in found.items()}
