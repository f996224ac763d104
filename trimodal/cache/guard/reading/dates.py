"""Gives dates and times of day in a question one spelling: `d:month5 d:day3`, `d:mon`, `d:17:00`.

Applied before `numbers`. A date whose day and month could be either way round stays as written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trimodal.cache.guard.lexicon.word_lists import word_list, word_map, word_set
from trimodal.cache.guard.reading.words import FIGURE, rewritten

_MONTHS = word_list("january february march april may june july august september october november december")
_WEEKDAYS = word_list("monday tuesday wednesday thursday friday saturday sunday")
_MONTH = {name: number for number, name in enumerate(_MONTHS, 1)}
_SHORT_MONTH = {name[:3]: number for name, number in _MONTH.items()} | {"sept": 9}
_DAY = (
    {name + end: name[:3] for name in _WEEKDAYS for end in ("", "s")}
    | {name[:3]: name[:3] for name in _WEEKDAYS[:5]}
    | {"tues": "tue", "thurs": "thu"}
)
# These months are everyday words too: a date only when they are written or used like one.
_AMBIGUOUS = frozenset({"may", "march"})
_BEFORE_MONTHS = word_set(
    "in of on since until till by last next this early late mid for before after during from every"
)
_WORDS = word_map(
    """noon=12:00 midday=12:00 midnight=0:00 bce=bc bc ce=ad ad today tonight tomorrow tmrw=tomorrow
    yesterday spring summer autumn winter morning afternoon evening weekend weekends=weekend weekday
    weekdays=weekday"""
)
_CLOCK = re.compile(r"(\d{1,2})(?:[:.](\d{2}))?(am|pm)?")
_ISO = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})")


def dated(words: Sequence[str]) -> list[str]:
    """`words` with months, weekdays, dates and times of day replaced."""
    return rewritten(words, _at)


def _at(words: Sequence[str], index: int) -> tuple[int, list[str]]:
    word = words[index]
    plain = word.lstrip("^")
    if word.startswith(FIGURE):
        return _figure(words, index)
    if month := _month(words, index):
        day = _day(words, index + 1)
        return (2, [f"d:month{month}", day]) if day else (1, [f"d:month{month}"])
    later = [word.lstrip("^") for word in words[index + 1 : index + 3]]
    if _DAY.get(plain) == "sat" and later[:1] in (["and"], ["or"]) and _DAY.get(later[-1]) == "sun":
        return 3, ["d:weekend"]
    if plain in _DAY:
        return 1, [f"d:{_DAY[plain]}"]
    if plain in _WORDS and (plain != "ad" or word != plain):
        return 1, [f"d:{_WORDS[plain]}"]
    return 1, [word]


def _month(words: Sequence[str], index: int) -> int:
    """Returns the month at `index`, 0 when there is none."""
    if not 0 <= index < len(words):
        return 0
    word = words[index]
    plain = word.lstrip("^")
    numbers = [words[place] for place in (index - 1, index + 1) if 0 <= place < len(words)]
    beside = any(number.startswith(FIGURE) for number in numbers)
    if plain in _SHORT_MONTH and plain not in _MONTH:
        return _SHORT_MONTH[plain] if beside else 0
    if plain not in _MONTH:
        return 0
    used = word != plain or beside or (index > 0 and words[index - 1] in _BEFORE_MONTHS)
    return _MONTH[plain] if used or plain not in _AMBIGUOUS else 0


def _day(words: Sequence[str], index: int) -> str:
    """Returns the day of a month at `index`; "" when there is none."""
    match = re.fullmatch(r"#(\d{1,2})(?:st|nd|rd|th)?", words[index]) if index < len(words) else None
    return f"d:day{int(match[1])}" if match and 1 <= int(match[1]) <= 31 else ""


def _figure(words: Sequence[str], index: int) -> tuple[int, list[str]]:
    text = words[index][1:]
    after = words[index + 1].lower() if index + 1 < len(words) else ""
    if iso := _ISO.fullmatch(text):
        return 1, [f"n:{iso[1]}", f"d:month{int(iso[2])}", f"d:day{int(iso[3])}"]
    if re.fullmatch(r"\d{1,2}[/.-]\d{1,2}[/.-]\d{2,4}", text) or re.fullmatch(r"\d{2,4}'?s", text):
        return 1, [f"d:{text.replace(chr(39), '')}"]
    if day := _day(words, index):
        of = 1 if after == "of" else 0
        if month := _month(words, index + 1 + of):
            return 2 + of, [f"d:month{month}", day]
    if clock := _CLOCK.fullmatch(text):
        half = clock[3] or {"am": "am", "pm": "pm", "=a.m": "am", "=p.m": "pm"}.get(after, "")
        hour = int(clock[1])
        if hour < 24 and (half or (clock[2] and ":" in text)):
            hour = hour % 12 + (12 if half == "pm" else 0) if half else hour
            return 2 if half and not clock[3] else 1, [f"d:{hour}:{clock[2] or '00'}"]
        if after == "oclock":
            return 2, [words[index]]
    return 1, [words[index]]
