"""Cuts an answer into sentences while it comes: a speech synthesiser speaks whole ones."""

from __future__ import annotations

import re

MOST = 2_000
"""Characters that are held: a text without an end is cut at a blank, and finding an end costs no more."""
_CLOSERS = "\"'”’)]」』）"
_SIGNS = ".!?…。！？"
_RUN = re.compile(rf"[{_SIGNS}][{_SIGNS}{re.escape(_CLOSERS)}]*\s*|\n\s*")
_NAMES = "[A-Z]", "Mr", "Mrs", "Ms", "Dr", "Prof", "St", "vs", r"e\.g", r"i\.e"
_ABBREVIATION = re.compile("|".join(rf"(?<=\b{name})\." for name in _NAMES))
_NUMBER = re.compile(r"\W*\d{1,3}")  # of a list


class SentenceCutter:
    """Holds back the sentence that is not over yet, at most MOST characters of it."""

    def __init__(self) -> None:
        self._held = ""
        self._seen = 0  # characters of it that end nothing

    def push(self, text: str) -> list[str]:
        """The sentences that are over with this text; joined with the rest they are the answer.

        One is over when the next one's first character is there.
        """
        held = self._held + text
        sentences: list[str] = []
        begin, seen = 0, self._seen
        while True:
            most = begin + MOST
            run = _RUN.search(held, seen, most)
            if run and run.end() < min(most, len(held)):
                seen = run.end()
                if not _ends(held, begin, run):
                    continue
            elif len(held) >= most:
                seen = held.rfind(" ", begin, most) + 1 or most
            else:
                break
            sentences.append(held[begin:seen])
            begin = seen
        self._held, self._seen = held[begin:], (run.start() if run else len(held)) - begin
        return sentences

    def rest(self) -> list[str]:
        """What was held back, if anything: no more text comes."""
        rest, self._held, self._seen = self._held, "", 0
        return [rest] if rest else []


def _ends(held: str, begin: int, run: re.Match[str]) -> bool:
    """Whether signs and blanks end the sentence that begins there; something follows them."""
    if "\n" in run[0]:
        return not held[begin : run.end()].isspace()
    signs, after = run[0].rstrip(), held[run.end()]
    if signs[-1] in _CLOSERS and (after.islower() or after in "とっ、，"):  # “No!” she said.
        return False
    if not set(signs).isdisjoint("。！？"):
        return True
    if signs == run[0]:
        return False
    alone = signs.rstrip(_CLOSERS) == "."
    return not alone or not (
        _ABBREVIATION.match(held, run.start()) or _NUMBER.fullmatch(held, begin, run.start())
    )
