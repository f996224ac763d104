"""Decides how long a silence ends a turn: by what is heard in its pause, and by its last words."""

from __future__ import annotations

# OpenAI's semantic_vad: eagerness → the longest silence of a turn, seconds.
LONGEST_S = {"low": 8.0, "medium": 4.0, "high": 2.0, "auto": 4.0}
# … → from which probability on that the speaker has finished, the pause itself is the end.
_SURE = {"low": 0.7, "medium": 0.5, "high": 0.3, "auto": 0.5}
PAUSE_S = 0.2  # after which the model is asked: recordings that it learned from end so
UNKNOWN_S = 0.5  # ends a turn where the model does not answer: as server_vad has it
# A sentence that ends with one of these goes on, however it sounds.
_GOES_ON = {
    "a", "an", "and", "because", "but", "for", "from", "if", "in", "is", "of", "or", "so", "than", "that",
    "the", "then", "to", "um", "uh", "with", "which",
}  # fmt: skip
# What somebody says who only listens.
_BACKCHANNELS = {
    "ah", "aha", "alright", "hm", "hmm", "huh", "mhm", "mm", "mmhm", "mmhmm", "mmm", "oh", "ok", "okay",
    "right", "sure", "uh", "uhhuh", "um", "yeah", "yep", "yes",
}  # fmt: skip
_SIGNS = ".,;:!?…\"'“”()[]¿¡।。、，？！—–"


def spoken(text: str) -> tuple[str, ...]:
    """The words of a text, as far as they can be told apart by ear: without case and punctuation."""
    given = text.lower().replace("’", "'").split()
    return tuple(word for one in given if (word := one.rstrip(_SIGNS + "-").lstrip(_SIGNS)))


def is_backchannel(text: str) -> bool:
    """Whether a listener's "mhm" or "yeah" is all that was said; what has no words is none yet."""
    words = spoken(text)
    return len(words) <= 3 and all(word.replace("-", "") in _BACKCHANNELS for word in words)


def is_likely_end(finished: float, words: str, eagerness: str) -> bool:
    """Whether the pause itself is the end: `finished` is the model's probability, `words` those so far."""
    return finished >= _SURE[eagerness] and not _goes_on(words)


def silence_s(finished: float, words: str, eagerness: str) -> float:
    """Seconds of silence that end a turn: PAUSE_S where it is likely over, else up to the longest."""
    if is_likely_end(finished, words, eagerness):
        return PAUSE_S
    doubt = 1.0 if _goes_on(words) else 1.0 - finished / _SURE[eagerness]
    return PAUSE_S + (LONGEST_S[eagerness] - PAUSE_S) * doubt**2


def _goes_on(words: str) -> bool:
    last = spoken(words)[-1:]
    if not last or words.rstrip().endswith("?"):
        return False
    return last[0] in _GOES_ON or words.rstrip().endswith((",", "-", "…", "..."))
