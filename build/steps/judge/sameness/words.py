"""Replaces words by other spellings, abbreviations and synonyms, from the lists beside this module."""

from __future__ import annotations

import random
import re
from functools import cache

from steps.judge.sameness.texts import WordPair, chosen, map_unquoted, word_pairs

# What both sides of a pair may begin with, so that a word's few questions are not met always alike.
LEADS = (
    "", "", "", "Hi, I need some help. ", "I could not find this anywhere. ", "Short question. ",
    "This came up at work today. ", "I have looked everywhere. ", "Here is what I want to know. ",
    "One more question. ", "Hello everybody. ", "This is probably easy. ",
)  # fmt: skip


@cache
def _replacements(name: str, units: bool) -> tuple[re.Pattern[str], dict[str, str]]:
    """A pattern of all words of a list that another may stand for, and that other by word."""
    other: dict[str, str] = {}
    for pair in word_pairs(name):
        if units or not pair.unit:
            other.setdefault(pair.first, pair.second)
            if pair.both:
                other.setdefault(pair.second, pair.first)
    words = sorted(other, key=len, reverse=True)
    return re.compile(rf"(?<![\w'’\-])(?:{'|'.join(map(re.escape, words))})(?![\w'’\-])"), other


def _replaced(text: str, rng: random.Random, name: str, units: bool) -> str:
    """The text with some of the words of a list replaced, at least one where there is one."""
    pattern, other = _replacements(name, units)
    # The first word of a sentence is looked up in small letters.
    small = _small_starts(text)
    hits = [match for match in pattern.finditer(small) if _article_fits(small, match, other[match[0]])]
    if not hits:
        return text
    taken = {match.start() for match in rng.sample(hits, rng.randint(1, len(hits)))}

    def replace(match: re.Match[str]) -> str:
        return other[match[0]] if match.start() in taken else match[0]

    changed = pattern.sub(replace, small)
    return map_unquoted(r"(?:^|(?<=[.?!] ))[a-z]", lambda match: match[0].upper(), changed)


def _article_fits(text: str, match: re.Match[str], other: str) -> bool:
    """Whether the "a" or "an" before a word is also right before the other."""
    after_article = re.search(r"\b[Aa]n? $", text[: match.start()])
    return not after_article or (match[0][0] in "aeiou") == (other[0] in "aeiou")


def _small_starts(text: str) -> str:
    return re.sub(r"(?:^|(?<=[.?!] ))[A-Z](?=[a-z]*\b)(?!\w*[A-Z])", lambda match: match[0].lower(), text)


def respell(text: str, rng: random.Random) -> str:
    """British for American spellings or the reverse, where a word is no unit and has no second meaning."""
    if '"' in text or "`" in text:
        return text
    pattern, other = _replacements("spellings.txt", units=False)
    hits = pattern.findall(text)
    if not hits:
        return text
    taken = rng.choice(hits)
    return pattern.sub(lambda match: other[match[0]] if match[0] == taken else match[0], text)


def replace_synonyms(text: str, rng: random.Random) -> str:
    """Phrases for phrases that mean the same."""
    if '"' in text:
        return text
    return _replaced(text, rng, "synonyms.txt", units=True)


def asked_with(name: str, rng: random.Random) -> tuple[str, str, str]:
    """A question with either word of a pair of a list, and its domain."""
    pair: WordPair = rng.choice(word_pairs(name))
    domain, text = pair.questions[0]
    text = rng.choice(LEADS) + chosen(text, rng)
    return tuple(_with_article(text, word) for word in (pair.first, pair.second)) + (domain,)  # type: ignore[return-value]


def _with_article(text: str, word: str) -> str:
    """The text with the word in its "{}": "an MRI", "a magnet"; a capital where a sentence begins with it."""
    if re.search(r"(?:^|[.?!] )\{\}", text):
        word = word[0].upper() + word[1:]
    spoken = word[0] in "AEFHILMNORSX" if re.match(r"[A-Z]{2,}\b", word) else word[0].lower() in "aeio"
    spoken = spoken or word.startswith(("umbrella", "unit of"))
    text = re.sub(r"\b([Aa])n? \{\}", rf"\1{'n' if spoken else ''} {{}}", text)
    return text.replace("{}", word)
