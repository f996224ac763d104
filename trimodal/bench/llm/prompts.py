"""Makes the prompts of the llm bench: fresh random texts of a length, or the lines of a file in turn."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

from trimodal.errors import SettingsError
from trimodal.llm.engines.protocol import Sampling
from trimodal.llm.request.request import GenerationRequest
from trimodal.llm.settings import LlmSettings
from trimodal.llm.tokenizer import ByteTokenizer, CheckpointTokenizer


class Prompts:
    """A source of prompts for one model.

    Args:
        settings: whose tokenizer and chat template count.
        file: one prompt a line, asked in turn; None makes random ones that share no prefix.
        tokens: about how long a random prompt is.
    """

    def __init__(self, settings: LlmSettings, file: Path | None, tokens: int, seed: int = 0) -> None:
        self._settings = settings
        self._tokenizer = (
            ByteTokenizer() if settings.engine == "fake" else CheckpointTokenizer(settings.artefact_directory)
        )
        self._tokens = tokens
        self._rng = random.Random(seed)
        self._words = sorted({"".join(self._rng.choices("abcdefghij", k=4)) for _ in range(3000)})
        self._lines = itertools.cycle(_lines(file)) if file else None

    def next(self) -> str:
        """Returns the next prompt."""
        return next(self._lines) if self._lines else self.random(self._tokens)

    def random(self, tokens: int) -> str:
        """Made-up words that encode to at most `tokens` tokens, or one word."""
        text = self._rng.choice(self._words)
        while True:
            longer = " ".join([text, *self._rng.choices(self._words, k=4)])
            if len(self._tokenizer.encode_prompt(longer)) > tokens:
                return text
            text = longer

    def token_ids(self, text: str) -> list[int]:
        """Returns the ids that the served model makes of `text`."""
        request = GenerationRequest(text, None, Sampling(max_tokens=1))
        return request.token_ids(self._tokenizer, self._settings.apply_chat_template)


def _lines(file: Path) -> list[str]:
    try:
        lines = [line for line in file.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--prompts {file}: cannot be read: {error}") from None
    if not lines:
        raise SettingsError(f"--prompts {file}: no line with text in it")
    return lines
