import pytest

from trimodal.regress.golden.schema import Expectation, broken
from trimodal.regress.values import Said


def expect(**fields):
    return Expectation.model_validate(fields, strict=False)


@pytest.mark.parametrize(
    ("expectation", "said", "reason"),
    [
        (expect(), Said(error="UNAVAILABLE"), ""),
        (expect(exact="yes"), Said(text="yes"), ""),
        (expect(exact="yes"), Said(text="yes."), "is not 'yes'"),
        (expect(contains=["a", "b"]), Said(text="b a"), ""),
        (expect(contains=["a", "b"]), Said(text="a"), "does not contain 'b'"),
        (expect(contains=""), Said(text=""), ""),
        (expect(regex="^y"), Said(text="yes"), ""),
        (expect(regex="^e"), Said(text="yes"), "does not match '^e'"),
        (expect(label="7"), Said(labels=(("7", 0.9), ("1", 0.1))), ""),
        (expect(label="1"), Said(labels=(("7", 0.9), ("1", 0.1))), "label '7' is not '1'"),
        (expect(label="1"), Said(), "label '' is not '1'"),
        (expect(text="one two", wer_max=0.5), Said(text="one too"), ""),
        (expect(text="one two", wer_max=0.4), Said(text="one too"), "word error rate 0.500 is above 0.4"),
        (expect(text="x", similarity_min=0.8), Said(text="y", cosine=0.8), ""),
        (expect(text="x", similarity_min=0.8), Said(text="y", cosine=0.79), "similarity 0.790 is below 0.8"),
        (expect(text="x", similarity_min=0.8), Said(), "no text to compare"),
        (expect(contains=""), Said(text="full", error="UNAVAILABLE"), "UNAVAILABLE: full"),
        (expect(exact="a" * 50), Said(), f"is not '{'a' * 39}…'"),
    ],
)  # fmt: skip
def test_broken(expectation, said, reason):
    assert broken(expectation, said) == reason


def test_all_parts_must_hold():
    expectation = expect(contains="a", regex="b$")
    assert broken(expectation, Said(text="a b")) == ""
    assert broken(expectation, Said(text="b")) == "does not contain 'a'"
    assert broken(expectation, Said(text="b a")) == "does not match 'b$'"
