"""The server's command line, in the files that were named: compose files, Dockerfiles, scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from trimodal.check.findings import Finding, Target
from trimodal.check.rules import RULES
from trimodal.check.source import SourcePosition
from trimodal.check.version import shown

_FIXED = (25, 7)  # CVE-2025-23310, 23311, 23319, 23320, 23334
_IMAGE = re.compile(r"tritonserver:(\d\d)\.(\d\d)-")
_RESTRICTED = re.compile(r"--(http-restricted-api|grpc-restricted-protocol)[=\s\"',]+([\w,-]+):")
_MODE = re.compile(r"--model-control-mode[=\s\"',]+(\w+)")
_SERVER = re.compile(r"\btritonserver(?=[\s\"',]|$)", re.MULTILINE)
_OPTION = re.compile(r"(?<![\w-])--\w")
_ALL_LOCAL = re.compile(r"--(http|grpc)-address[=\s\"',]+(?:127\.0\.0\.1|localhost)")


def check_deployment(target: Target) -> Iterator[Finding]:
    for file in target.deployment:
        yield from _file(file)


def _file(file: Path) -> Iterator[Finding]:
    # Comments are left out, lines stay where they are.
    written = file.read_text("utf-8", errors="replace")
    lines = [re.sub(r"(^|\s)#.*", "", line) for line in written.split("\n")]
    text = "\n".join(lines)

    def finding(rule: str, sentence: str, start: int) -> Finding:
        line = text.count("\n", 0, start)
        position = SourcePosition(line + 1, start - text.rfind("\n", 0, start))
        return RULES[rule].finding(file, position, sentence)

    for image in _IMAGE.finditer(text):
        release = (int(image[1]), int(image[2]))
        if release < _FIXED:
            yield finding("TRI122", f"the image is of {shown(release)}", image.start())
    for start, own in _servers(text):
        if len(set(_ALL_LOCAL.findall(own))) == 2:
            continue
        restricted = [(flag, apis.split(",")) for flag, apis in _RESTRICTED.findall(own)]
        mode = _MODE.search(own)
        if mode and mode[1] == "explicit" and _open("model-repository", restricted):
            sentence = "--model-control-mode=explicit, and the repository API is open"
            yield finding("TRI120", sentence, mode.start())
        if _open("shared-memory", restricted):
            yield finding("TRI121", "tritonserver with its shared-memory API open", start)


def _servers(text: str) -> Iterator[tuple[int, str]]:
    """Where each server stands, and the text with the other servers' options blank.

    A name that no option follows, as of a container or a folder, is no server beside others. What stands
    before the first may be for all of them.
    """
    starts = [found.start() for found in _SERVER.finditer(text)]
    pieces = pairwise([*starts, len(text)])
    servers = [(start, end) for start, end in pieces if _OPTION.search(text, start, end)]
    if len(servers) < 2:
        yield from ((start, text) for start in starts[:1])
        return
    for start, end in servers:
        yield start, text[: starts[0]] + re.sub(r"[^\n]", " ", text[starts[0] : start]) + text[start:end]


def _open(api: str, restricted: list[tuple[str, list[str]]]) -> bool:
    """Whether one of the two protocols leaves an API to anybody."""
    return len({flag for flag, apis in restricted if api in apis}) < 2
