"""Writes timed words as text, SRT, WebVTT or JSON.

A cue ends at a pause, at the end of a sentence, or where another word would make it longer
than two lines or six seconds; then it is cut where it reads best. A line has 42 characters,
or 16 of Chinese, Japanese and Korean, as in Netflix's guides of timed text.
"""

from __future__ import annotations

import html
import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

from trimodal.audio.values import Word

Format = Literal["text", "srt", "vtt", "json"]

LINE_CHARS = 42
WIDE_CHARS = 16  # of those that are as wide as high
CUE_S = 6.0
# A cue stays long enough to be read, if the next one leaves the time.
SHORTEST_S = 1.0
PAUSE_S = 0.8
# In plain text a pause this long begins a new line.
PARAGRAPH_S = 2.0

_SENTENCE = (".", "?", "!", "…", "。", "？", "！")
_CLAUSE = (",", ";", ":", "、", "，", "；", "：")
_CLOSING = "\"'”’)»」』）"  # may stand behind a sentence's or a clause's end
_OPENING = "「『（"  # no line ends with them, and none begins with these:
_NOT_FIRST = (*_SENTENCE, *_CLAUSE, *_CLOSING, *"ーっゃゅょッャュョ々")


@dataclass(frozen=True)
class Cue:
    """Lines that are shown together, and the tokens of their words. Times in whole milliseconds."""

    start_ms: int
    end_ms: int
    lines: tuple[str, ...]
    tokens: tuple[int, ...] = ()


def render(words: Sequence[Word], form: Format, *, seconds: float = 0.0, name: str = "") -> str:
    """A transcript, with a newline at its end unless it is empty text or SRT.

    `words` are in order of time, with the spaces before them; no cue ends after the `seconds` of the
    recording, if they are known; `name` is for JSON.
    """
    if form == "srt":
        return as_srt(words, seconds)
    if form == "vtt":
        return as_vtt(words, seconds)
    if form == "json":
        return as_json(words, seconds, name)
    return as_text(words)


def as_text(words: Sequence[Word]) -> str:
    """The words as they are written; a new line after each long pause."""
    lines: list[list[Word]] = []
    for unit in _units(words):
        if not lines or unit.start - lines[-1][-1].end >= PARAGRAPH_S:
            lines.append([])
        lines[-1].append(unit)
    return "".join(f"{_joined(line)}\n" for line in lines)


def as_srt(words: Sequence[Word], seconds: float = 0.0) -> str:
    """SubRip. It has no escapes, so that an arrow, which parsers look for, is made shorter."""
    return "\n".join(
        f"{number}\n{timestamp(cue.start_ms, ',')} --> {timestamp(cue.end_ms, ',')}\n"
        + "".join(f"{line.replace('-->', '->')}\n" for line in cue.lines)
        for number, cue in enumerate(cues(words, seconds), 1)
    )


def as_vtt(words: Sequence[Word], seconds: float = 0.0) -> str:
    """WebVTT, whose text is a kind of HTML: & < > are escaped."""
    return "WEBVTT\n" + "".join(
        f"\n{timestamp(cue.start_ms)} --> {timestamp(cue.end_ms)}\n"
        + "".join(f"{html.escape(line, quote=False)}\n" for line in cue.lines)
        for cue in cues(words, seconds)
    )


def as_json(words: Sequence[Word], seconds: float = 0.0, name: str = "") -> str:
    """One line: file, text, seconds and words with their times."""
    rows = [
        {
            "word": word.text,
            "start": round(word.start, 3),
            "end": round(word.end, 3),
            "probability": round(word.probability, 4),
        }
        for word in words
    ]
    text = "".join(word.text for word in words).strip()
    value = {"file": name, "text": text, "seconds": round(seconds, 3), "words": rows}
    return json.dumps(value, ensure_ascii=False) + "\n"


def cues(words: Sequence[Word], seconds: float = 0.0) -> list[Cue]:
    """The words as cues: in order, never overlapping, each with a length above 0, none after `seconds`."""
    cues: list[Cue] = []
    groups = list(_groups(_units(words)))
    starts = [_ms(group[0].start) for group in groups]
    for number, group in enumerate(groups):
        # Word times may touch or go back by a little: a cue never does.
        start = max(starts[number], cues[-1].end_ms if cues else 0)
        end = max(_ms(group[-1].end), start + _ms(SHORTEST_S))
        if number + 1 < len(groups):
            end = min(end, max(starts[number + 1], _ms(group[-1].end)))
        elif seconds:
            end = min(end, _ms(seconds))
        end = max(start + 1, min(end, start + _ms(CUE_S)))
        tokens = tuple(token for unit in group for token in unit.tokens)
        cues.append(Cue(start, end, _lines(_joined(group)), tokens))
    return cues


def timestamp(milliseconds: int, point: str = ".") -> str:
    """HH:MM:SS.mmm; more than two digits of hours where they are needed."""
    seconds, milliseconds = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{milliseconds:03}"


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _joined(units: Sequence[Word]) -> str:
    return " ".join("".join(unit.text for unit in units).split())


def _units(words: Sequence[Word]) -> list[Word]:
    """Words that may stand at the begin of a line: what has no space before it belongs to the one before.

    Languages without spaces are glued up to a line (Chinese and Japanese: to two), to what a cue has time
    for, or to the end of a clause.
    """
    units: list[Word] = []
    for word in words:
        if not word.text.strip():
            continue
        if units and _glued(units[-1], word):
            before = units[-1]
            units[-1] = replace(
                before,
                text=before.text + word.text,
                end=max(before.end, word.end),
                tokens=before.tokens + word.tokens,
            )
        else:
            units.append(word)
    return units


def _glued(before: Word, word: Word) -> bool:
    if word.text[0].isspace() or word.start - before.end >= PAUSE_S:
        return False
    if _ends(before, (*_SENTENCE, *_CLAUSE)) and word.text[0].isalpha():  # but in "3.5", "so..."
        return False
    # What may be broken anywhere is as long as a cue.
    most = 2 if _is_wide(word.text[0]) else 1
    return len(_lines(before.text + word.text)) <= most and word.end - before.start <= CUE_S


def _ends(unit: Word, marks: tuple[str, ...]) -> bool:
    return unit.text.rstrip(_CLOSING).endswith(marks)


def _groups(units: Sequence[Word]) -> list[list[Word]]:
    """The units of each cue."""
    groups: list[list[Word]] = []
    group: list[Word] = []
    for unit in units:
        if group:
            sentence = _ends(group[-1], _SENTENCE) and group[-1].end - group[0].start >= SHORTEST_S
            if sentence or unit.start - group[-1].end >= PAUSE_S:
                groups.append(group)
                group = []
        group.append(unit)
        while len(group) > 1 and not _fits(group):
            cut = _best_cut(group)
            groups.append(group[:cut])
            group = group[cut:]
    return [*groups, group] if group else groups


def _fits(group: Sequence[Word]) -> bool:
    return group[-1].end - group[0].start <= CUE_S and len(_lines(_joined(group))) <= 2


def _best_cut(group: Sequence[Word]) -> int:
    """Where a group is cut that is too long by its last unit: in its second half, after a comma or a gap."""
    candidates = range(max(1, len(group) // 2), len(group))

    def reads(cut: int) -> tuple[bool, float, int]:
        gap = group[cut].start - group[cut - 1].end
        return _ends(group[cut - 1], _CLAUSE), round(gap, 1), cut

    return max(candidates, key=reads)


def _lines(text: str) -> tuple[str, ...]:
    """One line, or two of about the same length; more only for a word that is longer than a line."""
    widths = [0.0, *accumulate(map(_width, text))]
    if widths[-1] <= LINE_CHARS:
        return (text,)

    def first(at: int) -> float:
        return widths[at - 1 if text[at - 1] == " " else at]

    def second(at: int) -> float:
        return widths[-1] - widths[at]

    def reads(at: int) -> tuple[bool, float]:
        return text[at - 1] not in _CLAUSE, abs(first(at) - second(at))

    fitting = [at for at in range(1, min(len(text), LINE_CHARS + 2)) if first(at) <= LINE_CHARS]
    breaks = [at for at in fitting if _may_break(text, at)] or fitting[-1:]
    halving = [at for at in breaks if second(at) <= LINE_CHARS]
    at = min(halving, key=reads) if halving else breaks[-1]
    return (text[:at].rstrip(), *_lines(text[at:]))


def _may_break(text: str, at: int) -> bool:
    """Whether a line may begin there: behind a space, or between characters of Chinese and Japanese."""
    before, after = text[at - 1], text[at]
    if before == " ":
        return True
    korean = any("HANGUL" in unicodedata.name(letter, "") for letter in (before, after))
    return (
        _is_wide(before)
        and _is_wide(after)
        and not korean
        and before not in _OPENING
        and after not in _NOT_FIRST
    )


def _width(letter: str) -> float:
    """How much of LINE_CHARS it takes."""
    return LINE_CHARS / WIDE_CHARS if _is_wide(letter) else 1.0


def _is_wide(letter: str) -> bool:
    return unicodedata.east_asian_width(letter) in "WF"
