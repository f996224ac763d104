"""The commands that README.md and docs/ show: each script exists, and has each option that is shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAM = re.compile(r"(build/\w+\.py|(?<![\w/])trimodal (?:plan llm|(?:bench|cache) \w+|\w+))(.*)")


def shown() -> list[tuple[str, tuple[str, ...]]]:
    """Program → options, of every command in a code block or between backticks."""
    found: dict[str, set[str]] = {}
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        blocks = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        lines = [line for block in blocks for line in block.splitlines()] + re.findall(r"`([^`\n]+)`", prose)
        for line in lines:
            if match := PROGRAM.search(line.split("  #")[0]):
                program, rest = match.groups()
                if program.startswith("build/") or program.split()[1] in COMMANDS:
                    found.setdefault(program, set()).update(re.findall(r"(?<!\S)--[a-z][\w-]*", rest))
    return sorted((program, tuple(sorted(options))) for program, options in found.items())


COMMANDS = ("serve", "doctor", "chat", "classify", "transcribe", "plan", "bench", "ask", "cache", "regress")


@cache
def help_of(program: str) -> str:
    command = (
        [str(ROOT / program)]
        if program.startswith("build/")
        else ["-m", "trimodal.cli.app", *program.split()[1:]]
    )
    told = subprocess.run(
        [sys.executable, *command, "--help"],
        env={**os.environ, "COLUMNS": "250"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert told.returncode == 0, told.stderr
    return told.stdout


def test_commands_are_found() -> None:
    """Or the test below could not fail."""
    programs = [program for program, _ in shown()]
    assert {
        "build/vision_tensorrt.py",
        "build/llm_tensorrt_llm.py",
        "trimodal serve",
        "trimodal plan llm",
    } <= set(programs)


@pytest.mark.parametrize(("program", "options"), shown(), ids=lambda value: str(value)[:40])
def test_a_command_that_is_shown_exists(program: str, options: tuple[str, ...]) -> None:
    known = set(re.findall(r"--[a-z][\w-]*", help_of(program)))
    assert set(options) <= known
