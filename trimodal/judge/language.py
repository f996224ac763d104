"""Tells whether a question is in a language that the judge was trained for, by its small words alone.

A word that the lists know only from other languages, or that has a letter outside ASCII, speaks against
it; one that they know only from the judge's languages speaks for it. Whoever asks in a language without
a list, in ASCII and without small words, is taken for English: the judge then decides as it was taught.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from pathlib import Path

_LISTS = Path(__file__).with_name("function_words.txt")
_WORD = re.compile(r"[^\W\d_]+")


def is_foreign(text: str, languages: Collection[str]) -> bool:
    """Whether more words of `text` speak against the `languages` ("en", "de", …) than for them."""
    own = frozenset[str]().union(*map(function_words, languages))
    others = frozenset[str]().union(*(words for name, words in _lists().items() if name not in languages))
    balance = 0
    for word in _WORD.findall(text.lower()):
        if word in own:
            balance += word not in others
        elif word in others or not word.isascii():
            balance -= 1
    return balance < 0


def function_words(language: str) -> frozenset[str]:
    """The small words of a language by which it is known; none of one without a list."""
    return _lists().get(language, frozenset())


@cache
def _lists() -> dict[str, frozenset[str]]:
    lines = _LISTS.read_text(encoding="utf-8").splitlines()
    return {line.split()[0]: frozenset(line.split()[1:]) for line in lines if line and line[0] != "#"}
