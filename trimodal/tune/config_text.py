"""Edits single values of a config.pbtxt as text, so that comments and layout stay as they are.

The text is taken apart into fields with their positions; an edit replaces, adds or removes
the text of one field and touches nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trimodal.errors import SettingsError

_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<word>[A-Za-z0-9_.+-]+)
      | (?P<mark>[:{}<>\[\],;])""",
    re.VERBOSE,
)
_CLOSING = {"{": "}", "<": ">"}


@dataclass(frozen=True)
class Scalar:
    """A number, a word or a string; `start` and `end` are positions in the text."""

    start: int
    end: int


@dataclass(frozen=True)
class Message:
    """Fields between two brackets; `start` is before the opening one, `end` after the closing one."""

    start: int
    end: int
    fields: tuple[Field, ...]

    def named(self, name: str) -> list[Field]:
        return [field for field in self.fields if field.name == name]


@dataclass(frozen=True)
class Field:
    """One field; a list `[ … ]` is one field with several values. `past` is after its comma or semicolon."""

    name: str
    start: int
    end: int
    past: int
    value: Scalar
    """The whole value: the list with its brackets."""
    values: tuple[Scalar | Message, ...]


def set_field(text: str, path: Sequence[str], value: str | None) -> str:
    """The text with the field at `path` set; blocks on the way that are missing are added.

    Args:
        path: names of fields from the top; of a repeated block its first entry is meant.
        value: as it is to stand in the file; None removes the field, and with it a comment behind it.

    Raises:
        SettingsError: the text is no config that could be edited.
    """
    message = parse(text)
    for depth, name in enumerate(path[:-1]):
        found = message.named(name)
        block = found[0].values[0] if found and found[0].values else None
        if not isinstance(block, Message):
            return text if value is None else _add(text, message, _nested(path[depth:], value))
        message = block
    found = message.named(path[-1])
    if not found:
        return text if value is None else _add(text, message, f"{path[-1]}: {value}")
    for extra in reversed(found if value is None else found[1:]):
        text = _remove(text, extra)
    if value is not None:
        text = text[: found[0].value.start] + value + text[found[0].value.end :]
    return text


def set_parameter(text: str, key: str, value: str) -> str:
    """The text with `parameters { key: … value { string_value: … } }` of this key set, or added.

    Raises: SettingsError, as `set_field`.
    """
    root = parse(text)
    entries = [one for field in root.named("parameters") for one in field.values if isinstance(one, Message)]
    for entry in entries:
        if [unquoted(text, one.value) for one in entry.named("key")] == [key]:
            return _replaced(text, entry, quoted(value))
    added = f"parameters {{ key: {quoted(key)} value {{ string_value: {quoted(value)} }} }}"
    return _add(text, root, added, after="parameters")


def quoted(value: str) -> str:
    """A string as the format writes it."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def unquoted(text: str, value: Scalar) -> str:
    """What a string stands for, as far as names need it: no escapes."""
    parts = _TOKEN.finditer(text, value.start, value.end)
    return "".join(part.group()[1:-1] for part in parts if part.lastgroup == "string")


def parse(text: str) -> Message:
    """The fields of the whole text. Raises: SettingsError naming the line that it cannot read."""
    return _Parser(text).root()


def _nested(path: Sequence[str], value: str) -> str:
    inner = f"{path[-1]}: {value}"
    for name in reversed(path[:-1]):
        inner = f"{name} {{ {inner} }}"
    return inner


def _replaced(text: str, entry: Message, value: str) -> str:
    holders = [one for field in entry.named("value") for one in field.values if isinstance(one, Message)]
    for holder in holders:
        for field in holder.named("string_value"):
            return text[: field.value.start] + value + text[field.value.end :]
    if holders:
        return _add(text, holders[0], f"string_value: {value}")
    return _add(text, entry, f"value {{ string_value: {value} }}")


def _add(text: str, message: Message, snippet: str, after: str = "") -> str:
    """Adds a field after the last one called `after`, else after the last one of the block."""
    fields = message.named(after) or message.fields
    root = message.start < 0
    if root and not after:
        # Triton's fields stand at the head of our files, where knobs are, and anywhere in others'.
        fields = message.named("max_batch_size") or message.fields
    if not fields:
        if root:
            return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{snippet}\n"
        begin = text.rfind("\n", message.start, message.end) + 1
        if begin:  # comments alone
            indent = text[begin : message.end - 1]
            return f"{text[:begin]}{indent}  {snippet}\n{text[begin:]}"
        return f"{text[: message.start + 1]} {snippet} {text[message.end - 1 :]}"
    last = fields[-1]
    line_end = text.find("\n", last.past)
    line_end = len(text) if line_end < 0 else line_end
    begin = text.rfind("\n", 0, last.start) + 1
    indent = text[begin : last.start]
    rest = _code(text[last.past : line_end])
    if not rest and not indent.strip():
        return f"{text[:line_end]}\n{indent}{snippet}{text[line_end:]}"
    # Something else stands on that line: so shall this.
    return f"{text[: last.past]} {snippet}{text[last.past :]}"


def _remove(text: str, field: Field) -> str:
    """Removes a field, and the lines that it had for itself."""
    begin = text.rfind("\n", 0, field.start) + 1
    end = text.find("\n", field.past)
    end = len(text) if end < 0 else end + 1
    if not text[begin : field.start].strip() and not _code(text[field.past : end]):
        return text[:begin] + text[end:]
    before, behind = text[: field.start], text[field.past :]
    return before + (behind[1:] if before.endswith((" ", "\t")) and behind.startswith(" ") else behind)


def _code(line: str) -> str:
    """What of a line's end is no comment."""
    return line.partition("#")[0].strip()


class _Parser:
    """Reads fields one after the other."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._scan())
        self._next = 0

    def root(self) -> Message:
        fields = self._fields("")
        return Message(-1, len(self._text) + 1, fields)

    def _scan(self) -> Iterator[re.Match[str]]:
        position = 0
        while position < len(self._text):
            found = _TOKEN.match(self._text, position)
            if not found:
                raise self._failure(position)
            position = found.end()
            if found.lastgroup != "space":
                yield found

    def _peek(self) -> str:
        return self._tokens[self._next].group() if self._next < len(self._tokens) else ""

    def _take(self, kind: str = "", mark: str = "") -> re.Match[str]:
        if self._next >= len(self._tokens):
            raise self._failure(len(self._text))
        token = self._tokens[self._next]
        if (kind and token.lastgroup != kind) or (mark and token.group() != mark):
            raise self._failure(token.start())
        self._next += 1
        return token

    def _fields(self, closing: str) -> tuple[Field, ...]:
        fields = []
        while self._peek() and self._peek() != closing:
            fields.append(self._field())
        return tuple(fields)

    def _field(self) -> Field:
        name = self._take("word")
        if self._peek() == ":":
            self._take()
        if self._peek() == "[":
            begin, values = self._take().start(), []
            while self._peek() != "]":
                values.append(self._value())
                if self._peek() != "]":
                    self._take(mark=",")
            whole = Scalar(begin, self._take().end())
        else:
            values = [self._value()]
            whole = Scalar(values[0].start, values[0].end)
        past = self._take().end() if self._peek() in (",", ";") else whole.end
        return Field(name.group(), name.start(), whole.end, past, whole, tuple(values))

    def _value(self) -> Scalar | Message:
        first = self._take()
        if closing := _CLOSING.get(first.group()):
            fields = self._fields(closing)
            return Message(first.start(), self._take(mark=closing).end(), fields)
        if first.lastgroup == "mark":
            raise self._failure(first.start())
        last = first
        if first.lastgroup == "string":  # strings side by side are one
            while self._next < len(self._tokens) and self._tokens[self._next].lastgroup == "string":
                last = self._take()
        elif first.group() == "-":
            last = self._take("word")
        return Scalar(first.start(), last.end())

    def _failure(self, position: int) -> SettingsError:
        line = self._text.count("\n", 0, position) + 1
        return SettingsError(f"line {line} of the model configuration cannot be read")
