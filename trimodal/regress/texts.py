"""Measures how alike two texts are: shared words in order, and word errors."""

from __future__ import annotations

import difflib
import re

from trimodal.errors import OperatorError

# Words, single signs, and single characters of scripts that put no spaces between words.
_PARTS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+|[^\w\s]")


def overlap(first: str, second: str) -> float:
    """Share of the words and signs that both have in the same order: 1 for equal ones, 0 for none shared.

    Twice the matches over all parts of both (Ratcliff and Obershelp). Case counts, spaces do not.
    """
    # Without its "junk" rule, which drops the frequent words of long texts.
    return difflib.SequenceMatcher(
        None, _PARTS.findall(first), _PARTS.findall(second), autojunk=False
    ).ratio()


def word_errors(said: str, heard: str) -> float:
    """Word error rate of `heard` against `said`, as the field counts it: case and punctuation do not matter.

    Raises:
        OperatorError: the package for it is not installed.
    """
    from trimodal.audio.word_errors import normalise, word_error_rate

    if not normalise(said):
        return float(bool(normalise(heard)))
    try:
        return word_error_rate([said], [heard])
    except ImportError:
        raise OperatorError("word error rates need jiwer: pip install 'trimodal[audio]'") from None
