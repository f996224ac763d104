"""Edits single values of a config.pbtxt as text, so that comments and layout stay as they are.

An edit replaces, adds or removes the text of one field and touches nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trimodal.check.source import Extent, Malformed, Node, read_fields
from trimodal.errors import SettingsError

_STRING = re.compile(r""" "((?:[^"\\]|\\.)*)" | '((?:[^'\\]|\\.)*)' """, re.VERBOSE)


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
        block = next(iter(message.named(name)), None)
        if block is None or not block.is_message:
            return text if value is None else _add(text, message, _nested(path[depth:], value))
        message = block
    found = list(dict.fromkeys(node.extent for node in message.named(path[-1])))
    if not found:
        return text if value is None else _add(text, message, f"{path[-1]}: {value}")
    for extra in reversed(found if value is None else found[1:]):
        text = _remove(text, extra)
    if value is not None:
        text = text[: found[0].value] + value + text[found[0].end :]
    return text


def set_parameter(text: str, key: str, value: str) -> str:
    """The text with `parameters { key: … value { string_value: … } }` of this key set, or added.

    Raises: SettingsError, as `set_field`.
    """
    root = parse(text)
    for entry in root.named("parameters"):
        if [_unquoted(node.value) for node in entry.named("key")] == [key]:
            return _replaced(text, entry, quoted(value))
    added = f"parameters {{ key: {quoted(key)} value {{ string_value: {quoted(value)} }} }}"
    return _add(text, root, added, after="parameters")


def quoted(value: str) -> str:
    """A string as the format writes it."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _unquoted(value: str) -> str:
    """What a string stands for, as far as names need it: no escapes."""
    return "".join(one or other for one, other in _STRING.findall(value))


def parse(text: str) -> Node:
    """The fields of the whole text. Raises: SettingsError naming the line that it cannot read."""
    try:
        return read_fields(text)
    except Malformed as error:
        line = error.position.line
        raise SettingsError(f"line {line} of the model configuration cannot be read") from None


def _nested(path: Sequence[str], value: str) -> str:
    inner = f"{path[-1]}: {value}"
    for name in reversed(path[:-1]):
        inner = f"{name} {{ {inner} }}"
    return inner


def _replaced(text: str, entry: Node, value: str) -> str:
    holders = [node for node in entry.named("value") if node.is_message]
    for holder in holders:
        for node in holder.named("string_value"):
            return text[: node.start] + value + text[node.end :]
    if holders:
        return _add(text, holders[0], f"string_value: {value}")
    return _add(text, entry, f"value {{ string_value: {value} }}")


def _add(text: str, message: Node, snippet: str, after: str = "") -> str:
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
    last = fields[-1].extent
    line_end = text.find("\n", last.past)
    line_end = len(text) if line_end < 0 else line_end
    begin = text.rfind("\n", 0, last.start) + 1
    indent = text[begin : last.start]
    rest = _code(text[last.past : line_end])
    if not rest and not indent.strip():
        return f"{text[:line_end]}\n{indent}{snippet}{text[line_end:]}"
    # Something else stands on that line: so shall this.
    return f"{text[: last.past]} {snippet}{text[last.past :]}"


def _remove(text: str, field: Extent) -> str:
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
