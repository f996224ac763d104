"""Finds what tells two questions apart and the judge does not see: it reads neither case nor line ends.

The case of code, options and short words has a meaning (`-v` and `-V`, Mb and MB, it and IT), that of other
words hardly ever, nor that of a sentence's first word. White space has one in what has several lines.
"""

from __future__ import annotations

import re

from trimodal.judge.language import function_words

_AROUND = "?!.,;:\"'"
_CODE = re.compile(r"[^\w'’]|[\d_]")
_LONGEST_UNIT = 5
# Their capitals say nothing, but for those that are names, too; "i" is not on the list that tells a language.
_SMALL = (function_words("en") | {"i"}) - {"it", "us", "in", "or"}
_BLANKS = re.compile(r"\s+")


def differ_unseen(one: str, other: str) -> bool:
    """Whether a word of code, an option or a short word has another case, or lines begin otherwise."""
    if _breaks(one) != _breaks(other):
        return True
    if one == other or one.isupper() or other.isupper():
        return False  # Capitals throughout say nothing.
    mine, theirs = _cased(one), _cased(other)
    return any(mine[word] != theirs[word] for word in mine.keys() & theirs.keys())


def _breaks(text: str) -> list[str]:
    """White space that holds the end of a line."""
    return [blanks for blanks in _BLANKS.findall(text.strip()) if "\n" in blanks]


def _cased(text: str) -> dict[str, set[str]]:
    """Lower-case word → how it is written, of the words whose case has a meaning."""
    found: dict[str, set[str]] = {}
    begins = True
    for written in text.split():
        word = written.strip(_AROUND)
        low = word.lower()
        short = len(word) <= 2 and not begins and low not in _SMALL
        # Mbps and MBps: whoever writes a unit in lower case, or all in capitals, may mean either.
        unit = len(word) <= _LONGEST_UNIT and not begins and word != low and not word.isupper()
        if short or unit or _CODE.search(word):
            found.setdefault(low, set()).add(word)
        begins = written[-1] in "?!.:;…"
    return found
