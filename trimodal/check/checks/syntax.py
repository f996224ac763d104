"""Fields that no server or not this one knows, and placeholders."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any

from tritonclient.grpc import model_config_pb2

from trimodal.check.findings import Finding, Target
from trimodal.check.repository import Config
from trimodal.check.source import Node, SourcePosition
from trimodal.check.version import Release, shown

# Message → field → first container that knows it. Checked against the servers' sources.
SINCE: dict[str, dict[str, Release]] = {
    "ModelConfig": {"model_metrics": (24, 11)},
    "ModelEnsembling": {"max_inflight_requests": (25, 11)},
}
# ${name}, {{name}} and <<name>>; Triton's own variable begins with two dollars.
PLACEHOLDER = re.compile(r"(?<!\$)\$\{\w+\}|\{\{\s*\w+\s*\}\}|<<\w+>>")
_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"?|\'(?:\\.|[^\'\\])*\'?|#.*')  # strings, and a comment


def check_syntax(config: Config, target: Target) -> Iterator[Finding]:
    placeholders = list(_placeholders(config))
    yield from placeholders
    # A placeholder outside a string is no protobuf text: what the parser says of it says nothing more.
    bare = any(finding.rule == "TRI004" for finding in placeholders)
    yield from (() if bare else config.found)
    yield from _unknown_fields(config, config.root, model_config_pb2.ModelConfig.DESCRIPTOR, target)


def _placeholders(config: Config) -> Iterator[Finding]:
    for number, line in enumerate(config.text.split("\n"), 1):
        pieces = list(_QUOTED.finditer(line))
        for match in PLACEHOLDER.finditer(line):
            within = next((one[0][0] for one in pieces if one.start() <= match.start() < one.end()), "")
            if within != "#":
                rule, position = "TRI005" if within else "TRI004", SourcePosition(number, match.start() + 1)
                yield config.at(rule, f"{match.group()} was not filled in", position)


def _unknown_fields(config: Config, node: Node, message: Any, target: Target) -> Iterator[Finding]:
    for child in node.fields:
        known = message.fields_by_name.get(child.name)
        if known is None:
            yield config.at("TRI002", _sentence(child.name, message), child.position)
            continue
        since = SINCE.get(message.name, {}).get(child.name)
        if since and target.release < since:
            versions = f"from {shown(since)} on; checked for {shown(target.release)}"
            yield config.at("TRI003", f"{child.name} is known to Triton {versions}", child.position)
        if known.message_type is not None and child.is_message:
            yield from _unknown_fields(config, child, known.message_type, target)


def _sentence(name: str, message: Any) -> str:
    where = "at the top" if message.name == "ModelConfig" else f"in {message.name}"
    known = [field.name for field in message.fields]
    holders = sorted(holder for holder, fields in _messages().items() if name in fields)
    if holders and len(holders) <= 3:
        top = ["at the top" if holder == "ModelConfig" else f"in {holder}" for holder in holders]
        return f"there is no field {name} {where}; it belongs {' or '.join(top)}"
    close = difflib.get_close_matches(name, known, 1)
    return f"there is no field {name} {where}" + (f"; {close[0]} is near" if close else "")


def _messages() -> dict[str, set[str]]:
    """Message → its fields, of all that a configuration can hold."""
    found: dict[str, set[str]] = {}

    def walk(message: Any) -> None:
        if message.name not in found and not message.GetOptions().map_entry:
            found[message.name] = {field.name for field in message.fields}
            for field in message.fields:
                if field.message_type is not None:
                    walk(field.message_type)

    walk(model_config_pb2.ModelConfig.DESCRIPTOR)
    return found
