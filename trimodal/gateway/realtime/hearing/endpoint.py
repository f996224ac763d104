"""Decides how long a silence ends a turn: by what is heard in its pause, and by its words."""

from __future__ import annotations

# OpenAI's semantic_vad: eagerness → the longest silence of a turn, seconds.
LONGEST_S = {"low": 8.0, "medium": 4.0, "high": 2.0, "auto": 4.0}
PAUSE_S = 0.2  # after which the model is asked: recordings that it learned from end so
UNKNOWN_S = 0.5  # ends a turn where the model does not answer: as server_vad has it
# Whether the words are a whole sentence → the silence that ends a turn which sounds over, and the one of a
# turn which does not; in shares of the longest. None: nobody says so, or not yet.
_SHARES = {True: (0.075, 0.5), None: (0.2, 1.0), False: (0.3, 1.0)}
_SHARE_GOES_ON = 0.5  # the shortest where the last word says that it is none, too
_SOUNDS_OVER = 0.7  # from which probability on
# A sentence that ends with one of these goes on, however it sounds.
_GOES_ON = {
    "a", "an", "and", "because", "but", "every", "for", "from", "if", "in", "into", "is", "my", "of", "or",
    "our", "so", "than", "that", "the", "their", "then", "to", "um", "uh", "with", "which", "your",
}  # fmt: skip
# What somebody says who only listens.
_BACKCHANNELS = {
    "ah", "aha", "alright", "hm", "hmm", "huh", "mhm", "mm", "mmhm", "mmhmm", "mmm", "oh", "ok", "okay",
    "right", "sure", "uh", "uhhuh", "um", "yeah", "yep", "yes",
}  # fmt: skip
SIGNS = ".,;:!?…\"'“”()[]¿¡।。、，？！—–"


def spoken(text: str) -> tuple[str, ...]:
    """The words of a text, as far as they can be told apart by ear: without case and punctuation."""
    given = text.lower().replace("’", "'").split()
    return tuple(word for one in given if (word := one.rstrip(SIGNS + "-").lstrip(SIGNS)))


def is_backchannel(text: str) -> bool:
    """Whether a listener's "mhm" or "yeah" is all that was said; what has no words is none yet."""
    words = spoken(text)
    return len(words) <= 3 and all(word.replace("-", "") in _BACKCHANNELS for word in words)


def silence_s(finished: float | None, complete: bool | None, words: str, eagerness: str) -> float:
    """Seconds of silence that end a turn.

    Args:
        finished: how probable it is by its sound that the speaker has finished; None: not known.
        complete: whether its words are a whole sentence; None: not known.
    """
    if finished is None:
        return UNKNOWN_S
    shortest, longest = _SHARES[complete]
    if not complete and _goes_on(words):
        shortest = _SHARE_GOES_ON
    doubt = max(0.0, 1.0 - finished / _SOUNDS_OVER)
    share = shortest + (longest - shortest) * doubt**2
    return max(PAUSE_S, share * LONGEST_S[eagerness])


def _goes_on(words: str) -> bool:
    last = spoken(words)[-1:]
    if not last or words.rstrip().endswith("?"):
        return False
    return last[0] in _GOES_ON or words.rstrip().endswith((",", "-", "…", "..."))
