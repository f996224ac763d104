"""Defines what recogniser, sessions and clients hand to each other: windows in, timed words out.

Audio is 16 kHz mono float32 in [-1, 1] everywhere; other formats are converted where they enter.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from trimodal.audio.values import Samples, Word

# Whisper's encoder takes 30 s; what is longer must be cut by the caller.
MAX_WINDOW_S = 30.0
MAX_PROMPT = 1000  # characters
MAX_TEMPERATURES = 8
# Of a Recognition.
FIGURES = (
    "no_speech_probability", "average_log_probability", "compression_ratio", "temperature",
    "language_probability",
)  # fmt: skip
TASKS = ("transcribe", "translate")
LEAST_LIKELY = 0.001  # of the languages that are told
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of audio to be recognised on its own.

    Attributes:
        samples: float32[n], 16 kHz mono, 0 < n ≤ 30 s.
        language: ISO 639-1 code ("en"), or "" for the engine's default (detected, if the model can).
        prompt: text that came before, "" for none; steers spelling and style, is never part of the result.
            Of several lines the first has names to expect, and is taken whole; of other text, the end.
        translate: the result is English, whatever is spoken; an English-only model writes what it hears.
        temperatures: at which it is decoded until a decoding is not doubted; () for the model's own.
        prefix: how the result begins, as was decided before, "" for nothing; decoding goes on after it.
        draft: what may follow, as a window before had it, "" for nothing; it changes no result, only how soon
            an engine has it.
    """

    samples: Samples
    language: str = ""
    prompt: str = ""
    translate: bool = False
    temperatures: tuple[float, ...] = ()
    prefix: str = ""
    draft: str = ""

    def written_in(self, spoken: str) -> str:
        """The language of the result where this one is spoken."""
        return "en" if self.translate else spoken


@dataclass(frozen=True, slots=True)
class Recognition:
    """What was heard in one window.

    Attributes:
        words: in order of time; their texts joined are `text`.
        language: ISO 639-1 code that was used or detected.
        no_speech_probability: of Whisper's <|nospeech|> token at the first step.
        average_log_probability: of the tokens made, natural logarithm.
        compression_ratio: UTF-8 bytes of the text to its zlib bytes; high where words repeat.
        temperature: of the decoding.
        language_probability: of the language that was detected; 1 for one that was given.
        language_probabilities: of each that is likelier than 0.001, the likeliest first; () for one given.
        doubted: the guard that each of its decodings failed ("repetition", "compression", "probability"),
            or ""; the best of them is kept.
        rejected: "silence" where that emptied `words`, or "".
    """

    words: tuple[Word, ...]
    language: str = "en"
    no_speech_probability: float = 0.0
    average_log_probability: float = 0.0
    compression_ratio: float = 0.0
    temperature: float = 0.0
    language_probability: float = 1.0
    doubted: str = ""
    rejected: str = ""
    language_probabilities: tuple[tuple[str, float], ...] = ()

    @property
    def text(self) -> str:
        """The words joined as they are written."""
        return "".join(word.text for word in self.words)


def likely(languages: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Those that are told of all with their probabilities, the likeliest first; it is always told."""
    ranked = sorted(languages, key=lambda one: -one[1])
    return (*ranked[:1], *(one for one in ranked[1:] if one[1] >= LEAST_LIKELY))


def batches(
    items: Iterable[Item], key: Callable[[Item], Hashable], most: int | None = None
) -> list[list[Item]]:
    """Items that agree in `key`, at most `most` together, in order of first appearance."""
    groups: dict[Hashable, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return [
        group[first : first + (most or len(group))]
        for group in groups.values()
        for first in range(0, len(group), most or len(group))
    ]
