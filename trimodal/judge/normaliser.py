"""Writes a question as the judge reads it: case, contractions, spelling, white space and its end made one.

The judge is trained on such texts and served with them. Which word becomes which is in `spellings.txt`;
digits, names and negation stay what they are.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from itertools import groupby
from pathlib import Path

_LISTS = Path(__file__).with_name("spellings.txt")
_WORD = re.compile(r"(?<!\w)[a-z]{1,24}(?:'[a-z]{1,3})?(?!\w)")
# Verbs that have a z in America. Words such as rise, promise, exercise, treatise end otherwise.
_ISE = re.compile(
    r"([a-z]{2,}(?:[aeo]r|[aio]l|[aeiou]n|ern|gn|og|erg|i[cdmt]|et|ot|mat))is"
    r"(e|es|ed|er|ers|ing|able|ations?)"
)
# Of what ends a text. Behind a digit or a sign only a question mark goes: 5! is not 5, and `ls .` not `ls`.
_END, _ASKED = " ?!.…", " ?!"
# "isn't that" and "is that not": the negation stands behind the person or thing.
_NOT = re.compile(
    r"\b(is|are|was|were|do|does|did|has|have|had|can|could|should|would|will|must) ?not "
    r"(i|you|he|she|it|we|they|that|this|there)\b"
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ONES = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
# As one number, for fifty-five is not 50-5.
_BELOW_100 = re.compile(rf"(?<!\w)({'|'.join(_TENS)})-({'|'.join(_ONES)})(?!\w)")
_APOSTROPHES = str.maketrans(dict.fromkeys("‘’ʼ´", "'"))  # no `: a shell runs what stands in it
# 2² is not 22, and ½ no 1 2: characters of these kinds stay as they are.
_RAISED = ("<super>", "<sub>", "<fraction>", "<circle>")


def normalise(text: str) -> str:
    """`text` in lower case and American spelling, contractions and common abbreviations written out.

    Without what ends it, with single blanks and with small numbers in digits.

    The result is in NFKC but for raised digits and fractions; normalising it again changes nothing.
    """
    # First the apostrophes: NFKC makes a blank and an accent of ´.
    plain = compatible(compatible(text.translate(_APOSTROPHES)).lower()).translate(_APOSTROPHES)
    plain = _BELOW_100.sub(lambda found: f"{_TENS.index(found[1]) + 2}{_ONES.index(found[2]) + 1}", plain)
    words = " ".join(_WORD.sub(lambda found: _rewritten(found[0]), plain).split())
    words = _NOT.sub(r"\1 \2 not", words)
    bare = words.rstrip(_END)
    after = words[len(bare) : len(bare) + 1]
    factorial = after == "!" and not bare[-2:-1].strip()  # of one letter
    if bare[-1:].isalpha() and after != " " and not factorial:
        return bare
    asked = words.find("?", len(words.rstrip(_ASKED)))
    return words if asked < 0 else words[:asked].rstrip() or words


def compatible(text: str) -> str:
    """`text` in NFKC but for what is raised, lowered, in circles, and fractions."""
    if text.isascii():
        return text
    parts = groupby(text, lambda one: unicodedata.decomposition(one).startswith(_RAISED))
    return "".join(
        "".join(part) if raised else unicodedata.normalize("NFKC", "".join(part)) for raised, part in parts
    )


@lru_cache(4096)
def _rewritten(word: str) -> str:
    words, beginnings, ends = _lists()
    if word in words:
        return words[word]
    for old, new in ends:
        if word.endswith(old) and len(word) >= len(old) + 2:
            return word[: -len(old)] + new
    for old, new in beginnings:
        if word.startswith(old):
            return new + word[len(old) :]
    return f"{found[1]}iz{found[2]}" if (found := _ISE.fullmatch(word)) else word


@cache
def _lists() -> tuple[dict[str, str], list[tuple[str, str]], list[tuple[str, str]]]:
    """Whole words, beginnings and ends, each with what is written for it."""
    words: dict[str, str] = {}
    beginnings, ends = [], []
    for line in _LISTS.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        old, new = line.replace("_", " ").split(maxsplit=1)
        if old.startswith("-"):
            ends.append((old[1:], new[1:]))
        elif old.endswith("-"):
            beginnings.append((old[:-1], new[:-1]))
        else:
            words[old] = new
    return words, beginnings, ends
