"""Compares what was heard with what was said, word by word."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trimodal.audio.files import package


def normalise(text: str) -> str:
    """Lower case, no punctuation (apostrophes close up, all else parts words), single spaces."""
    return " ".join(re.sub(r"[^\w\s]|_", " ", re.sub(r"['’]", "", text.lower())).split())


def word_error_rate(references: Sequence[str], hypotheses: Sequence[str]) -> float:
    """Of all texts together: wrong, missing and added words over the words that were said, normalised.

    Raises: AudioError: jiwer is not installed.
    """
    said, heard = (list(map(normalise, texts)) for texts in (references, hypotheses))
    return float(package("jiwer").process_words(said, heard).wer)
