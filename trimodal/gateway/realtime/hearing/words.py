"""Joins the words of one turn, as they are told to clients."""

from __future__ import annotations

from trimodal.client.values import LiveUpdate

SPEECH = "speech"  # the model


class Transcript:
    """The text of one turn.

    Args:
        at_s: where the turn begins, in seconds since the session's audio began.
    """

    def __init__(self, at_s: float = 0.0) -> None:
        self._at_s = at_s
        self.text = ""

    def add(self, update: LiveUpdate) -> str:
        """Adds what is new; returns it as it is to be told, so that all of it joined is the text."""
        delta = update.text if self.text else update.text.lstrip()
        self.text += delta
        return delta

    def told(self, update: LiveUpdate) -> list[dict[str, object]]:
        """The new words with their times in the session's audio: ours, beside what the dialects have."""
        return [
            {
                "word": word.text.strip(),
                "start": round(self._at_s + word.start, 3),
                "end": round(self._at_s + word.end, 3),
            }
            for word in update.committed
        ]
