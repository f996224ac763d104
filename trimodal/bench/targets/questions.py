"""Makes the prompts of a run: a file's lines, or random words, of a length that is drawn.

Number n of a seed is always the same question, so that all sides of a bench are asked the same.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trimodal.bench.load.lengths import Lengths
from trimodal.errors import SettingsError
from trimodal.files import read_at_most

TOKENS_PER_WORD = 2.0  # until `calibrate` knows better
_KEPT = 20_000  # questions made before a run: making one takes time that would count as the server's


@dataclass(frozen=True)
class Question:
    """One request for text."""

    text: str
    max_tokens: int


@dataclass(frozen=True)
class Mix:
    """What is asked. Lengths in tokens.

    Attributes:
        lines: asked in turn, instead of random words.
    """

    prompt: Lengths
    answer: Lengths
    lines: Sequence[str] = ()


# Number → question.
Source = Callable[[int], Question]


def listed(questions: Sequence[Question]) -> Source:
    """These questions, in turn."""
    return lambda number: questions[number % len(questions)]


class Questions:
    """The questions of one run.

    Args:
        seed: other seeds ask other questions: what one run asked is in no cache of the next.
        sizes: seed of the lengths alone; None: the same.
    """

    def __init__(
        self,
        mix: Mix,
        seed: int | str = 0,
        tokens_per_word: float = TOKENS_PER_WORD,
        sizes: int | str | None = None,
    ) -> None:
        self._mix = mix
        self._seed = seed
        self._sizes = seed if sizes is None else sizes
        self._per_word = tokens_per_word
        self._added = 0.0  # by a chat template
        self._first_line = 0
        rng = random.Random(0)
        self._words = sorted({"".join(rng.choices("abcdefghij", k=4)) for _ in range(3000)})
        self._kept: dict[int, Question] = {}

    def reseeded(self, seed: int | str) -> Questions:
        """The questions of another run, as long as these; lines begin at another one, not to be cached."""
        other = Questions(self._mix, seed)
        other._first_line = random.Random(f"lines {seed}").randrange(len(self._mix.lines) or 1)
        other._per_word, other._added = self._per_word, self._added
        return other

    async def calibrate(self, count: Callable[[str], Awaitable[int]]) -> None:
        """Learns how many tokens the model makes of a word.

        Args:
            count: tokens of the prompt with this text; 0: the server does not tell.
        """
        few, many = [await count(self._made(random.Random(1), words)) for words in (16, 80)]
        if few and many > few:
            self._per_word = (many - few) / 64
            self._added = max(0.0, few - 16 * self._per_word)

    def prepare(self, count: int) -> None:
        """Makes the first questions, so that making them takes no time of the run."""
        for number in range(len(self._kept), min(count, _KEPT)):
            self._kept[number] = self._question(number)

    def __call__(self, number: int) -> Question:
        """Returns question `number`."""
        return self._kept.get(number) or self._question(number)

    def _question(self, number: int) -> Question:
        mix, drawn = self._mix, random.Random(f"sizes {self._sizes} {number}")
        prompt, answer = mix.prompt.draw(drawn), mix.answer.draw(drawn)
        if mix.lines:
            return Question(mix.lines[(self._first_line + number) % len(mix.lines)], answer)
        words = max(1, round((prompt - self._added) / self._per_word))
        return Question(self._made(random.Random(f"{self._seed} {number}"), words), answer)

    def _made(self, rng: random.Random, words: int) -> str:
        return " ".join(rng.choices(self._words, k=words))


def read_lines(file: Path) -> list[str]:
    """Returns the lines with text of a file of prompts. Raises: SettingsError: there are none."""
    try:
        lines = [line for line in read_at_most(file).decode().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise SettingsError(f"--prompts {file}: cannot be read: {why}") from None
    if not lines:
        raise SettingsError(f"--prompts {file}: no line with text in it")
    return lines
