"""Drops courtesies from a question and makes the many ways to ask the same one word.

`@how`, `@what`, `@why`, … stand for what is asked for, `@can`, `@must`, `@should` for what may be. The rules
are in frames.txt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path


def _rules() -> Iterator[tuple[re.Pattern[str], str]]:
    text = Path(__file__).with_name("frames.txt").read_text(encoding="utf-8").replace("\n    ", "")
    parts: dict[str, str] = {}
    for line in text.splitlines():
        if named := re.fullmatch(r"(<\w+>) = (.*)", line):
            parts[named[1]] = named[2]
        elif not line.startswith("#"):
            pattern, _, replacement = line.partition(" =>")
            for name, part in parts.items():
                pattern = pattern.replace(name, part)
            yield re.compile(rf"(?<= )(?:{pattern})(?= )"), replacement.strip()


RULES = tuple(_rules())
"""Patterns and what their matches become, in the order in which they are applied."""
_SPACES = re.compile(" {2,}")


def framed(words: Sequence[str]) -> list[str]:
    """`words` with courtesies dropped and frames as `@` words."""
    text = f" | {' '.join(words)} "
    for pattern, replacement in RULES:
        text, changed = pattern.subn(replacement, text)
        if changed:
            text = _SPACES.sub(" ", text)
    return text.split()
