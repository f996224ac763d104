"""Joins the words of one turn, as clients get them."""

from __future__ import annotations

from trimodal.client.values import LiveUpdate

SPEECH = "speech"  # the model


class TurnText:
    """The text of one turn.

    Args:
        at_s: where the turn begins, in seconds since the session's audio began.
    """

    def __init__(self, at_s: float = 0.0) -> None:
        self._at_s = at_s
        self._tentative: str | None = ""  # as it was sent last; None: words came since
        self.text = ""

    def add(self, update: LiveUpdate) -> str:
        """Adds what is new and returns it: all that it returns, joined, is the text."""
        delta = update.text if self.text else update.text.lstrip()
        self.text += delta
        if delta:
            self._tentative = None
        return delta

    def tentative(self, update: LiveUpdate) -> str | None:
        """Returns what follows the text and may still change; None: it is as it was.

        After a delta it is always returned, so that no client has to know which words the delta made final.
        """
        guess = update.tentative if self.text else update.tentative.lstrip()
        if guess == self._tentative:
            return None
        self._tentative = guess
        return guess

    def words(self, update: LiveUpdate) -> list[dict[str, object]]:
        """The new words with their times in the session's audio: ours, beside what the dialects have."""
        return [
            {
                "word": word.text.strip(),
                "start": round(self._at_s + word.start, 3),
                "end": round(self._at_s + word.end, 3),
            }
            for word in update.committed
        ]
