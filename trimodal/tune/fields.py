"""Reads and sets one knob of a model configuration: in the parsed message, and in the file's text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf import text_format  # type: ignore[import-untyped]
from tritonclient.grpc import model_config_pb2

from trimodal.check.source import Malformed, Node, read_fields
from trimodal.errors import SettingsError
from trimodal.repository import as_python_reads

# Triton's own knobs → where they stand; every other name is a parameter.
PATHS: dict[str, tuple[str, ...]] = {
    "max_batch_size": ("max_batch_size",),
    "max_queue_delay_microseconds": ("dynamic_batching", "max_queue_delay_microseconds"),
    "instance_count": ("instance_group", "count"),
}


def read(config: Any, name: str) -> str | None:
    """The knob's value as text; None: a parameter that the configuration does not name."""
    if name not in PATHS:
        return config.parameters[name].string_value if name in config.parameters else None
    if name == "instance_count":
        return str(max(1, config.instance_group[0].count) if config.instance_group else 1)
    holder = config.dynamic_batching if len(PATHS[name]) > 1 else config
    return str(getattr(holder, name))


def put(config: Any, name: str, value: str) -> None:
    """Sets the knob in the parsed configuration. Raises: SettingsError naming knob and value."""
    if name not in PATHS:
        config.parameters[name].string_value = value
        return
    try:
        if name == "instance_count":
            group = config.instance_group[0] if config.instance_group else config.instance_group.add()
            group.count = int(value)
        else:
            setattr(config.dynamic_batching if len(PATHS[name]) > 1 else config, name, int(value))
    except ValueError:  # no number, or out of its type's range
        raise SettingsError(f"{name} cannot be {value!r}") from None
    sizes = config.dynamic_batching.preferred_batch_size
    if name == "max_batch_size" and any(size > int(value) for size in sizes):  # the server would refuse them
        sizes[:] = [size for size in sizes if size <= int(value)]


def put_text(text: str, name: str, value: str) -> str:
    """The config's text with the knob set; comments and layout stay.

    Raises:
        SettingsError: the edited text would not say what the knob means: a layout that is not understood.
    """
    wanted = _parsed(text)
    put(wanted, name, value)
    by_hand = SettingsError(f"{name} cannot be set in this layout: set it to {value} by hand")
    try:
        root = read_fields(text)
        new = _set(text, root, PATHS[name], value) if name in PATHS else _parameter(text, root, name, value)
        if name == "max_batch_size":
            new = _without_larger(new, int(value))
        if _parsed(new) == wanted:
            return new
    except (Malformed, SettingsError):
        pass
    raise by_hand


def file_for(directory: Path, profile: str) -> Path:
    """The file that a profile reads of a model's directory."""
    own = directory / "configs" / f"{profile}.pbtxt"
    return own if profile != "tensorrt" and own.is_file() else directory / "config.pbtxt"


def _set(text: str, root: Node, path: Sequence[str], value: str) -> str:
    """Replaces a value, or adds the field to its block, or the block."""
    node = root
    for name in path:
        found = node.named(name)
        if found:
            node = found[0]
        elif name == path[0]:
            inner = f"{name}: {value}" if len(path) == 1 else f"{name} {{ {path[1]}: {value} }}"
            # Triton's fields stand at the head of our files, where knobs are, and anywhere in others'.
            return _add_line(text, inner, root.named("max_batch_size"))
        else:
            at = node.start + 1
            gap = re.match(r"\s*\n\s*", text[at:])
            return f"{text[:at]}{gap[0] if gap else ' '}{name}: {value}{text[at:]}"
    return text[: node.start] + value + text[node.end :]


def _without_larger(text: str, most: int) -> str:
    """Takes the preferred batch sizes above `most` out of a list in brackets."""
    nodes = read_fields(text).find(("dynamic_batching",)).named("preferred_batch_size")
    sizes = _parsed(text).dynamic_batching.preferred_batch_size
    for node, size in reversed(list(zip(nodes, sizes, strict=False))):
        if size > most:
            before, behind = text[: node.start], text[node.end :]
            if before.rstrip().endswith(","):
                before = before.rstrip()[:-1]
            else:
                behind = re.sub(r"^\s*,\s*", "", behind)
            text = before + behind
    return text


def _parameter(text: str, root: Node, key: str, value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    entries = root.named("parameters")
    for entry in entries:
        if entry.find(("key",)).value.strip("\"'") == key:
            node = entry.find(("value", "string_value"))
            return f'{text[: node.start]}"{escaped}"{text[node.end :]}'
    added = f'parameters {{ key: "{key}" value {{ string_value: "{escaped}" }} }}'
    return _add_line(text, added, entries)


def _add_line(text: str, line: str, after: Sequence[Node]) -> str:
    """A line of its own, behind that of the last of some fields, else at the end."""
    end = text.find("\n", after[-1].end) if after else -1
    if end < 0:
        return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{line}\n"
    return f"{text[:end]}\n{line}{text[end:]}"


def _parsed(text: str) -> Any:
    try:
        return text_format.Parse(as_python_reads(text), model_config_pb2.ModelConfig())
    except (text_format.ParseError, ValueError) as error:  # ValueError: an enumeration's number is too large
        raise SettingsError(f"the model configuration is not valid: {error}") from None
