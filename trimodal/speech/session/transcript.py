"""Compares and collects words on a stream's sample clock: common beginnings, repetitions, the transcript.

Texts are compared without case and punctuation.
"""

from __future__ import annotations

import unicodedata
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import lru_cache

from trimodal.audio.values import MOST_CORRECTED, SAMPLE_RATE, Correction, Word

# Words of two windows are the same one only when their middles lie nearer than this, in samples.
_NEAR = SAMPLE_RATE * 3 // 4
_LEAST_LIKENESS = 0.25  # of a match: one word half as far as _NEAR away, or several further away
# By so much the mean probability of a correction may lie lower. tiny.en made mistakes of right words where it
# fell by 0.05 and more ("dialantry" of "dial entry"), and mended some where it fell by 0.02.
_LESS_SURE = 0.02
MOST_BEFORE = 800  # characters of a prompt: Whisper has room for some 223 tokens


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word as written, from sample `start` to `end` of the stream."""

    text: str
    start: int
    end: int
    probability: float = 1.0
    tokens: tuple[int, ...] = ()

    @property
    def middle(self) -> int:
        """Sample in the middle of the word: it moves less between hypotheses than its ends do."""
        return (self.start + self.end) // 2

    def to_word(self) -> Word:
        """The same in seconds."""
        start, end = self.start / SAMPLE_RATE, self.end / SAMPLE_RATE
        return Word(self.text, start, end, self.probability, self.tokens)


def on_stream(word: Word, parts: Sequence[tuple[int, int]]) -> SpokenWord:
    """A word of a window on the stream's clock, kept within the part of the window that has its middle."""
    middle = round((word.start + word.end) / 2 * SAMPLE_RATE)
    before = 0  # of the window, ahead of this part
    for start, end in parts[:-1]:
        if middle < before + end - start:
            break
        before += end - start
    else:
        start, end = parts[-1]
    first = min(max(start - before + round(word.start * SAMPLE_RATE), start), end)
    last = min(max(start - before + round(word.end * SAMPLE_RATE), first), end)
    return SpokenWord(word.text, first, last, word.probability, word.tokens)


@lru_cache(maxsize=4096)
def normalised(text: str) -> str:
    """What is compared: letters, marks and digits without case; the bare text where there are none.

    A letter is the same whether its accent is part of it or follows it. A vowel sign of an
    Indic script is a mark: without it different words would be one.
    """
    composed = unicodedata.normalize("NFC", text.casefold())
    return "".join(c for c in composed if unicodedata.category(c)[0] in "LNM") or text.strip()


def agreed(before: Sequence[SpokenWord], now: Sequence[SpokenWord]) -> int:
    """Words at the beginning that both hypotheses have, by text and roughly by time."""
    count = 0
    for old, new in zip(before, now, strict=False):
        if normalised(old.text) != normalised(new.text) or abs(old.middle - new.middle) > _NEAR:
            break
        count += 1
    return count


def without_made_up(words: Sequence[SpokenWord], silence: int) -> list[SpokenWord]:
    """The words of a window less the runs between two silences of so many samples that look made up.

    faster-whisper's rule of `hallucination_silence_threshold`; the window's ends count as silence there, too.
    """
    runs: list[list[SpokenWord]] = []
    for word in words:
        if not runs or word.start - runs[-1][-1].end >= silence:
            runs.append([])
        runs[-1].append(word)
    return [word for run in runs if not _looks_made_up(run) for word in run]


def _looks_made_up(words: Sequence[SpokenWord]) -> bool:
    """Of the first eight words nearly each is unlikely, shorter than a mouth can say, or very long."""
    first = [word for word in words if any(map(str.isalnum, word.text))][:8]
    score = 0.0
    for word in first:
        seconds = (word.end - word.start) / SAMPLE_RATE
        score += (word.probability < 0.15) + 15 * max(0.0, 0.133 - seconds) + max(0.0, seconds - 2)
    return score >= 3 or score + 0.01 >= len(first)


@lru_cache(maxsize=4096)
def _likeness(before: str, now: str) -> float:
    """Of two normalised words, 0 to 1; 0 of those that have less than half of their letters in common."""
    if before == now:
        return 1.0
    ratio = SequenceMatcher(None, before, now, autojunk=False).ratio()
    return ratio if ratio >= 0.5 else 0.0


def repeated(committed: Sequence[SpokenWord], words: Sequence[SpokenWord], start: int) -> int:
    """Words at the beginning of a window from sample `start` on that are committed already.

    The border is put behind the run of words that best repeats the last committed
    ones: the more of them, the more alike and the nearer in time, the better. What is said twice is
    thereby found twice. Without a match time decides: a word belongs to the past
    when its middle does.
    """
    if not committed:
        return 0
    # A word of which less than half lies in the window cannot be recognised in it.
    past = [word for word in committed if word.middle > start]
    best, border = _LEAST_LIKENESS, None
    for count in range(1, len(words) + 1):
        score = 0.0
        for old, new in zip(reversed(past), reversed(words[:count]), strict=False):
            distance = abs(old.middle - new.middle) / _NEAR
            likeness = 0.0 if distance >= 1 else _likeness(normalised(old.text), normalised(new.text))
            if not likeness:
                break
            score += likeness * (1 - distance) ** 2
        if score > best:
            best, border = score, count
    if border is not None:
        return border
    return next((n for n, word in enumerate(words) if word.middle > committed[-1].end), len(words))


def after_prefix(prefix: str, words: Sequence[SpokenWord]) -> tuple[SpokenWord, ...] | None:
    """The words behind a text that they begin with; None: there is none, or they do not begin with it.

    A word that goes on where the text ends ("cold", "cold-hearted") is cut there.
    """
    left = prefix.strip()
    if not left:
        return None
    for n, word in enumerate(words):
        text = word.text if n else word.text.lstrip()
        if text.startswith(left):
            rest = replace(word, text=text[len(left) :])
            return (*([rest] if rest.text else ()), *words[n + 1 :])
        if not left.startswith(text):
            return None
        left = left[len(text) :]
    return ()


def _sureness(words: Sequence[SpokenWord]) -> float:
    """The mean probability of the words."""
    return sum(word.probability for word in words) / len(words)


class Transcript:
    """The committed words in order of time; `recent` is what later windows may repeat.

    Those of the segment that somebody speaks may be corrected, by words that were heard in all of it at once.
    """

    def __init__(self) -> None:
        self.recent: deque[SpokenWord] = deque(maxlen=MOST_CORRECTED)
        self._new: list[SpokenWord] = []
        self._corrections: list[Correction] = []
        self._count = self._first = 0  # words committed; those of them before the segment
        self._open = 0  # words of the segment, which `recent` ends with

    @property
    def end(self) -> int:
        """End of the last word, in samples; 0 before any."""
        return self.recent[-1].end if self.recent else 0

    @property
    def has_new(self) -> bool:
        """Whether words were committed or corrected since the last `take`."""
        return bool(self._new or self._corrections)

    def commit(self, words: Sequence[SpokenWord]) -> None:
        """Adds words; times that reach back behind the last word are moved to its end."""
        for word in words:
            self._append(word)
            self._new.append(self.recent[-1])
        self._count += len(words)

    def correct(self, words: Sequence[SpokenWord], count: int) -> None:
        """Puts the first `count` words that were heard of all the segment in place of the committed ones.

        Not if they are the same, if Whisper is less sure of them, or if it left out what was said in some
        place, or said it twice.
        """
        corrected = words[:count]
        before = list(self.recent)[len(self.recent) - self._open :]
        if [word.text for word in before] == [word.text for word in corrected]:
            return
        if not before or self._open >= MOST_CORRECTED:
            return
        # One word may have been two or three; of more, twice as many are a sentence said twice.
        if not 0 < count < max(2 * len(before), 4):
            return
        middles = [word.middle for word in words]
        if any(min(abs(word.middle - middle) for middle in middles) > _NEAR for word in before):
            return
        if _sureness(corrected) < _sureness(before) - _LESS_SURE:
            return
        for _ in before:
            self.recent.pop()
        self._open = 0
        for word in corrected:
            self._append(word)
        heard = tuple(word.to_word() for word in list(self.recent)[-count:])
        self._corrections.append(Correction(self._first, self._count - self._first, heard))

    def close(self) -> None:
        """Ends the segment: its words stay as they are."""
        self._first, self._open = self._count, 0

    def take(self) -> tuple[Word, ...]:
        """The words committed since the last call, in seconds."""
        new, self._new = self._new, []
        return tuple(word.to_word() for word in new)

    def take_corrections(self) -> tuple[Correction, ...]:
        """The corrections since the last call."""
        corrections, self._corrections = tuple(self._corrections), []
        return corrections

    def _append(self, word: SpokenWord) -> None:
        start = max(word.start, self.end)
        self.recent.append(replace(word, start=start, end=max(word.end, start)))
        self._open += 1

    def between(self, start: int, end: int, room: int = MOST_BEFORE) -> str:
        """The last words from sample `start` to `end`: at most `room` and MOST_BEFORE letters, one line."""
        text = ""
        for word in reversed(self.recent):
            if word.start < start or len(word.text) + len(text) > min(room, MOST_BEFORE):
                break
            if word.end <= end:
                text = word.text + text
        return " ".join(text.split())
