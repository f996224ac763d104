"""Checks one answer against the expectation of its golden line, and counts its word errors."""

from __future__ import annotations

import re

from trimodal.errors import OperatorError
from trimodal.regress.golden.schema import Expectation
from trimodal.regress.values import Said


def broken(expect: Expectation, said: Said) -> str:
    """The first part of the expectation that the answer breaks, as a short text; "" when it keeps all."""
    if expect == Expectation():
        return ""
    if said.error:
        return f"{said.error}: {said.text}"
    if expect.exact is not None and said.text != expect.exact:
        return f"is not {_short(expect.exact)}"
    for part in expect.contained:
        if part not in said.text:
            return f"does not contain {_short(part)}"
    if expect.regex is not None and not re.search(expect.regex, said.text):
        return f"does not match {_short(expect.regex)}"
    if expect.label is not None:
        best = said.labels[0][0] if said.labels else ""
        if best != expect.label:
            return f"label {_short(best)} is not {_short(expect.label)}"
    reference = expect.text or ""
    if expect.wer_max is not None and (rate := word_errors(reference, said.text)) > expect.wer_max:
        return f"word error rate {rate:.3f} is above {expect.wer_max:g}"
    if expect.similarity_min is not None:
        if said.cosine is None:
            return "no text to compare"
        if said.cosine < expect.similarity_min:
            return f"similarity {said.cosine:.3f} is below {expect.similarity_min:g}"
    return ""


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


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")
