"""Classifies a word (name, code, number, word), normalises its spelling and lists what it may match."""

from __future__ import annotations

from trimodal.cache.guard.lexicon.lexicon import is_known, keys, lemma
from trimodal.cache.guard.lexicon.small_words import NO_DEGREE
from trimodal.cache.guard.reading.words import CODE, NAME

_PREFIXES = {"n:": "number", "o:": "number", "q:": "unit", "u:": "unit", "d:": "date"}


def known(token: str, phrase: bool) -> tuple[str, str, frozenset[int | str]]:
    """Kind, one spelling and keys of a token."""
    if phrase:
        return "word", token, keys(token)
    if kind := _PREFIXES.get(token[:2]):
        return kind, token, frozenset({token})
    if token.startswith(CODE):
        return "code", token, keys(token[1:]) - {token[1:]} | {token}
    if token.startswith(NAME):
        plain = token[1:]
        # A name that is also a word (Stones) has no other word for it; an abbreviation may.
        others: frozenset[int | str] = frozenset({plain}) if is_known(plain) else keys(plain)
        return "name", plain, others | {lemma(plain)}
    return "word", lemma(token), keys(lemma(token)) | {token}


def degree_of(token: str, text: str) -> str:
    """er or est, when it is an adjective in that form; else ""."""
    if token in NO_DEGREE:
        return NO_DEGREE[token]
    if text == token or token.startswith((NAME, CODE)):
        return ""
    stem = text[:-1] if text[-1] in "ey" else text
    for ending in ("est", "er"):
        if token.endswith(ending) and token.startswith(stem) and len(token) - len(stem) <= 4:
            return ending
    return ""
