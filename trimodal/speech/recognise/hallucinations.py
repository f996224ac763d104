"""Doubts what Whisper makes up over silence, over noise and in loops.

The rules, and the names and defaults of their thresholds, are those of openai-whisper and faster-whisper, but
for repetition: a short window that loops compresses too little for theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimodal.speech.settings import RecogniseSettings
from trimodal.speech.values import Recognition
from trimodal.speech.whisper.tokens import UNSPACED

SILENCE = "silence"  # nothing better can come of it: its words are dropped
LOOPING = ("repetition", "compression")
GUARDS = (SILENCE, *LOOPING, "probability")
# Auctioneers reach 6 words a second. The window's own words count, from the first's start to the last's end.
WORDS_PER_S = 12
# The same words again and again: this many times in a row, for phrases of so many words.
LOOPS = {1: 8, 2: 5, 3: 4, 4: 4, 5: 3, 6: 3}
# Spoken repetitions ("one one one") take time: a loop's words follow each other faster than this.
LOOP_WORDS_PER_S = 5
# Written without spaces every character is a word of its own: Thai has 15 of them a second.
CHARACTERS_A_WORD = 3


def doubted_by(heard: Recognition, settings: RecogniseSettings, *, translated: bool = False) -> str:
    """The first of `GUARDS` that doubts what was heard, or ""; nothing heard is never doubted."""
    if not heard.words:
        return ""
    unsure = heard.average_log_probability < settings.log_prob_threshold
    if heard.no_speech_probability > settings.no_speech_threshold and unsure:
        return SILENCE
    if is_repetition(heard, translated=translated):
        return "repetition"
    if heard.compression_ratio > settings.compression_ratio_threshold:
        return "compression"
    return "probability" if unsure else ""


def best(decodings: Sequence[Recognition]) -> Recognition:
    """Of decodings that are all doubted the likeliest; one that loops only where all do."""
    straight = [one for one in decodings if one.doubted == "probability"]
    return max(straight or decodings, key=lambda one: one.average_log_probability)


def is_repetition(heard: Recognition, *, translated: bool = False) -> bool:
    """A phrase loops faster than it can be spoken, or there are more words than a mouth can say.

    What is `translated` has English words, whatever language was heard.
    """
    parts = CHARACTERS_A_WORD if heard.language in UNSPACED and not translated else 1
    most = parts * WORDS_PER_S
    if len(heard.words) > most and _rate(heard, 0, len(heard.words)) > most:
        return True
    words = [word.text.strip().lower() for word in heard.words]
    return any(
        _rate(heard, start, end) > parts * LOOP_WORDS_PER_S
        for length, times in LOOPS.items()
        for start, end in loops(words, length, times)
    )


def loops(words: Sequence[str], length: int, times: int) -> list[tuple[int, int]]:
    """Ranges (start, end) in which a phrase of `length` words stands at least `times` times in a row."""
    found = []
    start = 0
    for at in range(length, len(words) + 1):
        if at < len(words) and words[at] == words[at - length]:
            continue
        if at - start >= length * times:
            found.append((start, at))
        start = at - length + 1
    return found


def _rate(heard: Recognition, start: int, end: int) -> float:
    """Words a second from the beginning of one to the end of the last."""
    seconds = heard.words[end - 1].end - heard.words[start].start
    return (end - start) / max(seconds, 0.02)
