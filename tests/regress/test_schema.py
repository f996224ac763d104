import sys

import pytest

from trimodal.audio.files import AudioError
from trimodal.regress.schema import Expectation, broken
from trimodal.regress.values import RecordedAnswer


def expect(**fields):
    return Expectation.model_validate(fields, strict=False)


@pytest.mark.parametrize(
    ("expectation", "answer", "reason"),
    [
        (expect(), RecordedAnswer(error="UNAVAILABLE"), ""),
        (expect(exact="yes"), RecordedAnswer(text="yes"), ""),
        (expect(exact="yes"), RecordedAnswer(text="yes."), "is not 'yes'"),
        (expect(contains=["a", "b"]), RecordedAnswer(text="b a"), ""),
        (expect(contains=["a", "b"]), RecordedAnswer(text="a"), "does not contain 'b'"),
        (expect(contains=""), RecordedAnswer(text=""), ""),
        (expect(regex="^y"), RecordedAnswer(text="yes"), ""),
        (expect(regex="^e"), RecordedAnswer(text="yes"), "does not match '^e'"),
        (expect(contains="a", regex="b$"), RecordedAnswer(text="a b"), ""),
        (expect(contains="a", regex="b$"), RecordedAnswer(text="b"), "does not contain 'a'"),
        (expect(contains="a", regex="b$"), RecordedAnswer(text="b a"), "does not match 'b$'"),
        (expect(label="7"), RecordedAnswer(labels=(("7", 0.9), ("1", 0.1))), ""),
        (expect(label="1"), RecordedAnswer(labels=(("7", 0.9), ("1", 0.1))), "label '7' is not '1'"),
        (expect(label="1"), RecordedAnswer(), "label '' is not '1'"),
        (expect(text="one two", wer_max=0.5), RecordedAnswer(text="one too"), ""),
        (
            expect(text="one two", wer_max=0.4),
            RecordedAnswer(text="one too"),
            "word error rate 0.500 is above 0.4",
        ),
        (expect(text="What's that?", wer_max=0), RecordedAnswer(text="whats that"), ""),
        (expect(contains=""), RecordedAnswer(text="full", error="UNAVAILABLE"), "UNAVAILABLE: full"),
        (expect(exact="a" * 50), RecordedAnswer(), f"is not '{'a' * 39}…'"),
    ],
)  # fmt: skip
def test_broken(expectation, answer, reason):
    assert broken(expectation, answer) == reason


def test_word_errors_without_their_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "jiwer", None)
    with pytest.raises(AudioError, match=r"needs the package jiwer: pip install 'trimodal\[audio\]'"):
        broken(expect(text="one", wer_max=0), RecordedAnswer(text="two"))
