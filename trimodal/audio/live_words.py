"""Keeps the words of a live stream as they are committed and corrected."""

from __future__ import annotations

from collections.abc import Iterable

from trimodal.audio.values import Correction, Word


class LiveWords:
    """The committed words of a stream, those that were corrected as they are now."""

    def __init__(self) -> None:
        self._taken = 0  # words that are not kept any more
        # By number of the committed word: a correction's words are in the place of its first one.
        self._places: list[tuple[Word, ...]] = []

    @property
    def words(self) -> tuple[Word, ...]:
        """Words that are kept, in order of time."""
        return tuple(word for place in self._places for word in place)

    @property
    def text(self) -> str:
        """The same as text, with the space before the first word if there is one."""
        return "".join(word.text for place in self._places for word in place)

    def add(self, committed: Iterable[Word], corrections: Iterable[Correction] = ()) -> None:
        """Adds words, and corrects those and earlier ones; what is not kept any more stays as it was."""
        self._places += [(word,) for word in committed]
        for one in corrections:
            first = one.first - self._taken
            if 0 <= first < len(self._places):
                count = min(one.count, len(self._places) - first)
                self._places[first : first + count] = [one.words, *[()] * (count - 1)]

    def take(self, keep: int = 0) -> tuple[Word, ...]:
        """Takes out all but the last `keep` of the words that were committed."""
        count = max(0, len(self._places) - keep)
        taken, self._places = self._places[:count], self._places[count:]
        self._taken += count
        return tuple(word for place in taken for word in place)
