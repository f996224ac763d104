"""Turns regular expressions into expressions of a grammar, over the characters of a JSON string.

Python's parser reads them; what a class stands for (\\d, \\w, \\s) is ECMA's, as JSON Schema has it.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from trimodal.llm.structured.grammar import MOST_REPEATS, PLAIN, Grammar, Range, characters, literal

try:
    from re import _constants as sre  # type: ignore[attr-defined]
    from re import _parser as parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_constants as sre
    import sre_parse as parser

MOST_CHARACTERS = 8192  # each may be a class of characters, which takes a tenth of a millisecond
_LAST = 0x10FFFF
_ESCAPED = (0x08, 0x09, 0x0A, 0x0C, 0x0D)  # of the control characters in a class; that is enough
_DIGITS: tuple[Range, ...] = ((0x30, 0x39),)
_WORD: tuple[Range, ...] = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: tuple[Range, ...] = (
    *((0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A)),
    *((0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
)
_LINE_ENDS: tuple[Range, ...] = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_EVERY = (
    sre.MAX_REPEAT,
    (0, sre.MAXREPEAT, parser.SubPattern(parser.State(), [(sre.IN, [(sre.RANGE, (0, _LAST))])])),
)
"""What may stand before or behind a pattern without an anchor there."""
_BEGINNINGS = [[(sre.AT, sre.AT_BEGINNING)], [(sre.AT, sre.AT_BEGINNING_STRING)]]
_ENDS = [[(sre.AT, sre.AT_END)], [(sre.AT, sre.AT_END_STRING)]]


def pattern_expression(grammar: Grammar, pattern: str, least: int, most: int | None) -> tuple[str, bool]:
    """An expression of the characters of a string that a pattern allows, and whether its length is kept.

    Raises:
        ValueError: it is no regular expression, or has what no grammar says; the end of a sentence.
    """
    if len(pattern) > MOST_CHARACTERS:
        raise ValueError(f"has {len(pattern)} characters: at most {MOST_CHARACTERS} are taken")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what later Pythons may read otherwise, as [[a]
            read = parser.parse(re.sub(r"\(\?<(?=[A-Za-z_])", "(?P<", pattern))
        if read.state.flags & (re.IGNORECASE | re.VERBOSE | re.LOCALE):
            raise ValueError("has flags: they are not supported")
        wholes = _wholes(list(read))
        fitted = [_fitted(items, least, most) for items in wholes]
        return _alternatives(grammar, [_sequence(grammar, items) for items, _ in fitted]), all(
            kept for _, kept in fitted
        )
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is no regular expression that is understood: {error}") from None


def _wholes(items: list[Any]) -> list[list[Any]]:
    """The alternatives of a whole text: without anchors, and with what may stand around them."""
    if len(items) == 1 and items[0][0] is sre.SUBPATTERN:
        return _wholes(_group(items[0][1]))
    *first, last = items or [(None, None)]
    if last[0] is sre.BRANCH:  # of "^a$|^b$" Python's parser makes ^(?:a$|b$)
        branches = [list(branch) for branch in last[1][1]]
        if not first or first in _BEGINNINGS:
            return [whole for branch in branches for whole in _wholes([*first, *branch])]
        if any(branch[-1:] in _ENDS for branch in branches):
            ways = [one[:-1] if one[-1:] in _ENDS else [*one, _EVERY] for one in branches]
            branch = (sre.BRANCH, (None, [parser.SubPattern(parser.State(), way) for way in ways]))
            items = [*first, branch, *_ENDS[0]]
    begins = items[:1] in _BEGINNINGS
    items = items[begins:]
    ends = items[-1:] in _ENDS
    items = items[: len(items) - ends]
    before = [] if begins or (items and _is_any(items[0])) else [_EVERY]
    return [[*before, *items, *([] if ends or (items and _is_any(items[-1])) else [_EVERY])]]


def _is_any(item: Any) -> bool:
    """Whether it is `.*`, beside which nothing more is needed."""
    name, value = item
    if name not in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        return False
    return tuple(value[:2]) == (0, sre.MAXREPEAT) and list(value[2]) == [(sre.ANY, None)]


def _fitted(items: list[Any], least: int, most: int | None) -> tuple[list[Any], bool]:
    """The items with the one repeat that can be longer or shorter bound by the length of all."""
    widths = [_width([item]) for item in items]
    low, high = sum(one for one, _ in widths), sum(one for _, one in widths)
    if low >= least and (most is None or high <= most):
        return items, True
    if (most is not None and low > most) or high < least:
        raise ValueError(_no_text(least, most))
    free = [index for index, (shortest, longest) in enumerate(widths) if shortest != longest]
    if len(free) != 1 or items[free[0]][0] not in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        return items, False
    name, (fewest, longest, one) = items[free[0]]
    if _width(one) != (1, 1):
        return items, False
    rest = low - fewest
    fewest = max(fewest, least - rest)
    longest = longest if most is None else min(longest, most - rest)
    if fewest > longest:
        raise ValueError(_no_text(least, most))
    return [*items[: free[0]], (name, (fewest, longest, one)), *items[free[0] + 1 :]], True


def _no_text(least: int, most: int | None) -> str:
    return f"leaves no text of {least} {'or more' if most is None else f'to {most}'} characters"


def _width(items: Any) -> tuple[int, int]:
    """The fewest and the most characters of what is matched."""
    try:
        low, high = parser.SubPattern(parser.State(), list(items)).getwidth()
    except IndexError:  # the group is not of these items
        raise ValueError("has a back reference: it is not supported") from None
    return int(low), int(high)


def _sequence(grammar: Grammar, items: Iterable[Any]) -> str:
    parts: list[str] = []
    text = ""
    for name, value in items:
        if name is sre.LITERAL and not 0xD800 <= value <= 0xDFFF:
            text += chr(value)
            continue
        if text:
            parts, text = [*parts, _literal(text)], ""
        parts.append(_element(grammar, name, value))
    return " ".join([*parts, *([_literal(text)] if text else [])]) or '""'


def _element(grammar: Grammar, name: Any, value: Any) -> str:
    if name in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        return _repeat(grammar, *value)
    if name is sre.SUBPATTERN:
        return grammar.rule(_sequence(grammar, _group(value)))
    if name is sre.BRANCH:
        return _alternatives(grammar, [_sequence(grammar, branch) for branch in value[1]])
    if name is sre.IN:
        return _class(grammar, _ranges(value))
    if name is sre.ANY:
        return _class(grammar, _but(_LINE_ENDS))
    if name is sre.NOT_LITERAL:
        return _class(grammar, _but([(value, value)]))
    word = "an anchor or a boundary inside" if name is sre.AT else "a look-around"
    raise ValueError(f"has {word}: it is not supported")


def _group(value: Any) -> list[Any]:
    _, added, removed, items = value
    if added or removed:
        raise ValueError("has flags: they are not supported")
    return list(items)


def _repeat(grammar: Grammar, least: int, most: Any, items: Any) -> str:
    if _width(items)[1] == 0:
        return '""'
    if least * max(1, _width(items)[0]) > MOST_REPEATS:
        raise ValueError(f"repeats {least} times: at most {MOST_REPEATS} characters are taken")
    one = grammar.rule(_sequence(grammar, items))
    if most is sre.MAXREPEAT:
        return f"{grammar.repeated(one, least, least)} {one}*" if least else f"{one}*"
    return grammar.repeated(one, least, min(most, MOST_REPEATS))


def _ranges(members: Sequence[Any]) -> tuple[Range, ...]:
    """The characters of a class."""
    negated, found = False, []
    for name, value in members:
        if name is sre.NEGATE:
            negated = True
        elif name is sre.LITERAL:
            found.append((value, value))
        elif name is sre.RANGE:
            found.append(value)
        else:
            found += _CATEGORIES[value]
    return _but(found) if negated else tuple(found)


def _but(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """All characters but these; in one pass, as a class may name thousands."""
    others, low = [], 0
    for first, last in sorted(ranges):
        others.append((low, first - 1))
        low = max(low, last + 1)
    return tuple((low, high) for low, high in [*others, (low, _LAST)] if low <= high)


_CATEGORIES = {
    sre.CATEGORY_DIGIT: _DIGITS, sre.CATEGORY_NOT_DIGIT: _but(_DIGITS),
    sre.CATEGORY_WORD: _WORD, sre.CATEGORY_NOT_WORD: _but(_WORD),
    sre.CATEGORY_SPACE: _SPACE, sre.CATEGORY_NOT_SPACE: _but(_SPACE),
}  # fmt: skip


def _class(grammar: Grammar, ranges: Iterable[Range]) -> str:
    """One of these characters, as a JSON string has it."""
    merged: list[Range] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    plain = [
        (max(first, low), min(last, high))
        for first, last in merged
        for low, high in PLAIN
        if max(first, low) <= min(last, high)
    ]
    escaped = [
        _literal(chr(code))
        for code in (0x22, 0x5C, *_ESCAPED)
        if any(first <= code <= last for first, last in merged)
    ]
    if not plain and not escaped:
        raise ValueError("has a class without any character")
    return _alternatives(grammar, [*([characters(plain)] if plain else []), *escaped])


def _alternatives(grammar: Grammar, expressions: Sequence[str]) -> str:
    different = list(dict.fromkeys(expressions))
    return grammar.rule(" | ".join(different)) if len(different) > 1 else different[0]


def _literal(text: str) -> str:
    """A terminal: this text within a JSON string."""
    return literal(json.dumps(text, ensure_ascii=False)[1:-1])
