"""Chooses a stream's language from what is detected in its windows, by faster-whisper's rule."""

from __future__ import annotations

from trimodal.audio.values import SAMPLE_RATE
from trimodal.speech.settings import ListeningSettings
from trimodal.speech.values import Recognition

_LEAST = 3 * SAMPLE_RATE  # of audio from which a language is told apart for sure enough


class StreamLanguage:
    """Keeps the language of a stream: detected anew in each window it would change within sentences.

    It is the given one, or that of the first window in which it is likelier than the threshold; where so many
    windows as are looked at have none, that of most of them, with its highest probability.

    Attributes:
        code: "" until it is known; `probability` is 1 for one that was given, and until then.
    """

    def __init__(self, given: str, settings: ListeningSettings) -> None:
        self.code, self.probability = given, 1.0
        self._most = settings.language_detection_segments
        self._threshold = settings.language_detection_threshold
        self._guesses: dict[str, list[float]] = {}

    def hear(self, heard: Recognition, samples: int, *, again: bool = False) -> None:
        """Takes in what was detected in a window of so many samples in which words were heard.

        Args:
            again: its speech is in a later window too, which counts in place of it.
        """
        if self.code or samples < _LEAST:
            return
        if not again:
            self._guesses.setdefault(heard.language, []).append(heard.language_probability)
        if heard.language_probability > self._threshold:
            self.code, self.probability = heard.language, heard.language_probability
        elif not again and sum(map(len, self._guesses.values())) == self._most:
            self.code = max(self._guesses, key=lambda code: len(self._guesses[code]))
            self.probability = max(self._guesses[self.code])
