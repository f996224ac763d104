"""Reads README.md and docs/: code blocks, commands, tables and links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
PROGRAM = re.compile(
    r"(?P<script>\b(?:build|clients|scripts|tests)/[\w/]+(?:\.py)?|\bdeploy/[\w/-]+\.py)(?![\w./])"
    r"|-m (?P<module>(?:trimodal|tests)(?:\.\w+)+)"
    r"|(?<![\w/])(?P<command>trimodal) "
)


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a language; "" are those without one."""
    return [text for found, text in BLOCK.findall(page.read_text()) if found == language]


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return BLOCK.sub("", page.read_text())


def quoted(page: Path) -> list[str]:
    """What stands between backticks in the prose."""
    return re.findall(r"`([^`\n]+)`", prose(page))


def shell_lines(page: Path) -> list[str]:
    """Lines of shell blocks, joined where they go on, without prompt and comment."""
    lines = []
    for language in ("", "bash", "sh", "console"):
        for block in blocks(page, language):
            lines += block.replace("\\\n", " ").splitlines()
    return [re.split(r"\s#\s", line.strip().removeprefix("$ "))[0] for line in lines]


def invocations(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Program and arguments of each command: "trimodal", a script's path, or a module's name."""
    for line in lines:
        for part in re.split(r"\s(?:&&|\|\||\|)\s", line):
            if found := PROGRAM.search(part):
                program = found["script"] or found["module"] or "trimodal"
                try:
                    yield program, shlex.split(part[found.end() :])
                except ValueError as error:
                    raise AssertionError(f"{line}: {error}") from None


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the page's headings."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found


def tables(text: str) -> list[list[str]]:
    """The cells of each row of the tables in `text`, without heads and rules."""
    rows = []
    for line in text.splitlines():
        if line.startswith("|"):
            rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])])
    return [row for row in rows if not set("".join(row)) <= set("-: ")]


def section(page: Path, title: str) -> str:
    """What stands below the heading, down to the next one of its level."""
    found = re.search(
        rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{1,2}} |\Z)", page.read_text(), re.DOTALL | re.MULTILINE
    )
    assert found, f"{page.name} has no section '{title}'"
    return found[2]
