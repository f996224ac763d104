"""Reads the lists beside this module, and the words that the judge's own texts know."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from judge import blocks, lines
from judge.pairs import read_text


def read_lines(name: str) -> list[str]:
    """The lines of a list, without its comments."""
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@cache
def vocabulary() -> frozenset[str]:
    """Every word that blocks and lines write in small letters."""
    files = [*blocks.FOLDER.glob("*.txt.xz"), *lines.FOLDER.glob("*.txt.xz")]
    return frozenset(word for file in files for word in re.findall(r"\b[a-z]+\b", read_text(file)))


def lower_first(text: str) -> str:
    """The text with a small first letter, unless its first word may be a name."""
    word = re.match(r"[A-Z][a-z]*\b(?!')|What's|How's|Where's", text)
    small = word and word[0] != "I" and word[0].lower().removesuffix("'s") in vocabulary()
    return text[0].lower() + text[1:] if small else text


def map_unquoted(
    pattern: str | re.Pattern[str], replace: str | Callable[[re.Match[str]], str], text: str
) -> str:
    """Replaces a pattern, but in nothing that stands between quotation marks or backticks."""
    parts = re.split(r'("[^"]*"|`[^`]*`)', text)
    parts[::2] = (re.sub(pattern, replace, part) for part in parts[::2])
    return "".join(parts)
