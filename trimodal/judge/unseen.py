"""Finds what tells two questions apart and the judge does not see: it reads neither case nor line ends.

The case of code, options and short words has a meaning (`-v` and `-V`, Mb and MB, it and IT), that of other
words hardly ever. White space has one in what has several lines.
"""

from __future__ import annotations

import re

_AROUND = "?!.,;:\"'"
_CODE = re.compile(r"[^\w'’]|[\d_]")
_BREAK = re.compile(r"\s*\n\s*")


def differ_unseen(one: str, other: str) -> bool:
    """Whether a word of code, an option or a short word has another case, or lines begin otherwise."""
    if _BREAK.findall(one.strip()) != _BREAK.findall(other.strip()):
        return True
    if one == other or one.isupper() or other.isupper():
        return False  # Capitals throughout say nothing.
    mine, theirs = _cased(one), _cased(other)
    return any(mine[word] != theirs[word] for word in mine.keys() & theirs.keys())


def _cased(text: str) -> dict[str, set[str]]:
    """Lower-case word → how it is written, of the words whose case has a meaning."""
    found: dict[str, set[str]] = {}
    for place, written in enumerate(text.split()):
        word = written.strip(_AROUND)
        code = bool(_CODE.search(word))
        if code or (len(word) <= 2 and place and word not in ("I", "i")):
            found.setdefault(word.lower(), set()).add(word)
    return found
