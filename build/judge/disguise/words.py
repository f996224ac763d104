"""Replaces words by other spellings, abbreviations and phrases that mean the same, from the lists beside it.

A line of a list is "first = second", or "first > second": only the first by the second.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from judge import blocks, lines
from judge.pairs import read_text


@cache
def _replacements(name: str) -> tuple[re.Pattern[str], dict[str, str]]:
    """A pattern of all words of a list that another may stand for, and that other by word."""
    other: dict[str, str] = {}
    for line in Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        first, sign, second = re.split(r" ([=>]) ", line)
        other.setdefault(first, second)
        if sign == "=":
            other.setdefault(second, first)
    words = sorted(other, key=len, reverse=True)
    return re.compile(rf"(?<![\w'’\-])(?:{'|'.join(map(re.escape, words))})(?![\w'’\-])"), other


def _replaced(text: str, rng: random.Random, name: str) -> str:
    """The text with some of the words of a list replaced, at least one where there is one."""
    if '"' in text or "`" in text:
        return text
    pattern, other = _replacements(name)
    # The first word of a sentence is looked up in small letters.
    small = re.sub(r"(?:^|(?<=[.?!] ))[A-Z](?=[a-z]*\b)(?!\w*[A-Z])", lambda match: match[0].lower(), text)
    hits = [match for match in pattern.finditer(small) if _article_fits(small, match, other[match[0]])]
    if not hits:
        return text
    taken = {match.start() for match in rng.sample(hits, rng.randint(1, len(hits)))}

    def replace(match: re.Match[str]) -> str:
        return other[match[0]] if match.start() in taken else match[0]

    changed = pattern.sub(replace, small)
    if text[0].islower():
        return changed
    return map_unquoted(r"(?:^|(?<=[.?!] ))[a-z]", lambda match: match[0].upper(), changed)


def _article_fits(text: str, match: re.Match[str], other: str) -> bool:
    """Whether the "a" or "an" before a word is also right before the other."""
    after_article = re.search(r"\b[Aa]n? $", text[: match.start()])
    return not after_article or (match[0][0] in "aeiou") == (other[0] in "aeiou")


def respell(text: str, rng: random.Random) -> str:
    """British for American spellings or the reverse, where a word has no second meaning."""
    return _replaced(text, rng, "spellings.txt")


def abbreviate(text: str, rng: random.Random) -> str:
    """Short forms for long ones or the reverse."""
    return _replaced(text, rng, "abbreviations.txt")


def replace_phrases(text: str, rng: random.Random) -> str:
    """Phrases for phrases that mean the same wherever they stand."""
    return _replaced(text, rng, "synonyms.txt")


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
