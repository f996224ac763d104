import pytest

from trimodal.regress.golden.schema import Expectation, broken
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
        (expect(label="7"), RecordedAnswer(labels=(("7", 0.9), ("1", 0.1))), ""),
        (expect(label="1"), RecordedAnswer(labels=(("7", 0.9), ("1", 0.1))), "label '7' is not '1'"),
        (expect(label="1"), RecordedAnswer(), "label '' is not '1'"),
        (expect(text="one two", wer_max=0.5), RecordedAnswer(text="one too"), ""),
        (
            expect(text="one two", wer_max=0.4),
            RecordedAnswer(text="one too"),
            "word error rate 0.500 is above 0.4",
        ),
        (expect(text="x", similarity_min=0.8), RecordedAnswer(text="y", cosine=0.8), ""),
        (
            expect(text="x", similarity_min=0.8),
            RecordedAnswer(text="y", cosine=0.79),
            "similarity 0.790 is below 0.8",
        ),
        (expect(text="x", similarity_min=0.8), RecordedAnswer(), "no text to compare"),
        (expect(contains=""), RecordedAnswer(text="full", error="UNAVAILABLE"), "UNAVAILABLE: full"),
        (expect(exact="a" * 50), RecordedAnswer(), f"is not '{'a' * 39}…'"),
    ],
)  # fmt: skip
def test_broken(expectation, answer, reason):
    assert broken(expectation, answer) == reason


def test_all_parts_must_hold():
    expectation = expect(contains="a", regex="b$")
    assert broken(expectation, RecordedAnswer(text="a b")) == ""
    assert broken(expectation, RecordedAnswer(text="b")) == "does not contain 'a'"
    assert broken(expectation, RecordedAnswer(text="b a")) == "does not match 'b$'"
