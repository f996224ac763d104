"""Cuts an answer into sentences while it comes: a speech synthesiser speaks whole ones."""

from __future__ import annotations

import re

_NO_END = "".join(
    rf"(?<!\b{one})" for one in ("[A-Z]", "Mr", "Mrs", "Ms", "Dr", "Prof", "St", "vs", r"e\.g", r"i\.e")
)
_END = re.compile(rf"{_NO_END}[.!?…]+[\"'”’)\]]*\s+|[。！？]+[”’」』）]*|\n+")


class SentenceCutter:
    """Holds back the sentence that is not over yet."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, text: str) -> list[str]:
        """The sentences that are over with this text; joined with the rest they are the answer."""
        self._held += text
        ends = [found.end() for found in _END.finditer(self._held)]
        sentences = [self._held[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        self._held = self._held[ends[-1] if ends else 0 :]
        return sentences

    def rest(self) -> list[str]:
        """What was held back, if anything: no more text comes."""
        rest, self._held = self._held, ""
        return [rest] if rest else []
