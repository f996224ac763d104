import pytest

from tests.regress.runs import record
from trimodal.regress.compare.answers import compare_answers, compare_expectations
from trimodal.regress.compare.findings import Limits
from trimodal.regress.golden.schema import Expectation
from trimodal.regress.values import RecordedAnswer

CONTAINS = Expectation(contains="yes")
REFUSED = RecordedAnswer(text="the queue is full", error="UNAVAILABLE")


def compared(before, after, *, expected=False, **limits):
    return compare_answers("c", before, after, Limits(**limits), expected=expected)


def expected(before, after, expect=CONTAINS, alpha=0.05):
    return compare_expectations("c", expect, before, after, alpha)


def test_the_same_answers_are_no_finding():
    assert compared(record("one", "one"), record("one", "one", "one")) == []
    assert compared(record("one", "two"), record("two")) == []


def test_another_answer_is_worse_unless_it_is_alike_enough():
    before, after = record("one two three four"), record("one two three five")
    (found,) = compared(before, after)
    assert (found.verdict, found.what, found.detail) == ("worse", "answer", "overlap 0.75; 1 of 1 requests")
    assert (found.before, found.after) == ("one two three four", "one two three five")
    assert compared(before, after, overlap=0.7)[0].verdict == "changed"
    assert compared(before, after, overlap=0.8)[0].verdict == "worse"
    assert compared(before, after, expected=True)[0].verdict == "changed"


def test_spaces_alone_are_a_change_and_not_worse():
    (found,) = compared(record("one  two"), record("one two"))
    assert (found.verdict, found.detail) == ("changed", "overlap 1.00; 1 of 1 requests")


def test_an_answer_that_only_sometimes_differs():
    (found,) = compared(record("one two", "one two"), record("one two", "one two", "other"))
    assert (found.verdict, found.detail) == ("worse", "overlap 0.00; 1 of 3 requests")


def test_sampled_answers_need_to_be_as_alike_as_they_were_among_themselves():
    before = record("a b c d", "a b x y", "a b c y")  # each is 0.75 like another
    assert compared(before, record("a b c z"))[0].verdict == "changed"
    assert compared(before, record("a q q z"))[0].verdict == "worse"


def test_the_finish_reason_is_part_of_the_answer():
    (found,) = compared(record("one two"), record(RecordedAnswer(text="one two", finish_reason="length")))
    assert found.verdict == "worse"
    assert "finish reason stop → length" in found.detail


def test_refusals():
    assert compared(record("yes"), record("yes", REFUSED))[0].verdict == "worse"
    assert compared(record("yes"), record(REFUSED), expected=True)[0].verdict == "worse"
    (found,) = compared(record(REFUSED), record("yes"))
    assert (found.verdict, found.before) == ("better", "UNAVAILABLE: the queue is full")
    other = RecordedAnswer(text="no", error="INTERNAL")
    assert compared(record(REFUSED), record(other))[0].verdict == "changed"
    assert compared(record(REFUSED), record(REFUSED)) == []
    assert compared(record(REFUSED, "yes"), record("yes")) == []


def test_speech_tells_word_errors():
    pytest.importorskip("jiwer")
    (found,) = compared(record("one two three", task="speech"), record("one too three", task="speech"))
    assert found.detail == "overlap 0.67, word errors 0.33; 1 of 1 requests"


def test_labels():
    def seen(*labels):
        return record(RecordedAnswer(labels=labels), task="vision")

    before = seen(("7", 0.9), ("1", 0.1))
    (found,) = compared(before, seen(("1", 0.6), ("7", 0.4)))
    assert (found.verdict, found.before, found.after) == ("worse", "7 0.900", "1 0.600")
    assert compared(before, seen(("1", 0.6), ("7", 0.4)), expected=True)[0].verdict == "changed"
    assert compared(before, seen(("7", 0.86), ("1", 0.14))) == []
    (found,) = compared(before, seen(("7", 0.8), ("1", 0.2)))
    assert (found.verdict, found.detail) == ("changed", "scores moved by 0.100; 1 of 1 requests")
    assert compared(before, seen(("7", 0.8), ("1", 0.2)), score=0.2) == []
    assert compared(before, seen(("7", 0.9))) == []  # a label that was cut off is no drift
    assert compared(before, seen(("7", 0.9), ("2", 0.1))) == []


def test_vectors():
    def made(*numbers):
        return record(RecordedAnswer(vector=numbers), task="embedding")

    before = made(1.0, 0.0)
    assert compared(before, made(0.999999, 0.001)) == []
    assert compared(before, made(0.9995, 0.03))[0].verdict == "changed"
    (found,) = compared(before, made(0.9, 0.43589))
    assert (found.verdict, found.detail) == ("worse", "cosine 0.90000; 1 of 1 requests")
    assert compared(before, made(1.0, 0.0, 0.0))[0].after == "3 numbers"
    assert compared(before, made(1.0, 0.0, 0.0))[0].verdict == "worse"
    assert compared(before, made(0.0, 0.0))[0].verdict == "worse"


def test_the_assistant_says_what_it_heard_and_saw():
    one = RecordedAnswer(text="yes", heard="is it", labels=(("7", 0.9),))
    (found,) = compared(record(one), record(one.model_copy(update={"heard": "it is"})))
    assert (found.verdict, found.detail) == (
        "changed",
        "overlap 1.00, heard 'is it' → 'it is'; 1 of 1 requests",
    )
    (found,) = compared(record(one), record(one.model_copy(update={"labels": (("1", 0.9),)})))
    assert (found.verdict, found.detail) == ("worse", "another label; 1 of 1 requests")


def test_long_answers_are_shown_short():
    (found,) = compared(record("a " * 500), record("b\n" * 500))
    assert found.after == "b " * 29 + "b…"


def test_control_characters_are_not_shown():
    (found,) = compared(record("\x1b[31mred\n"), record("\x07 \u202egreen"))
    assert (found.before, found.after) == ("�[31mred", "� �green")


def test_many_sampled_answers_are_compared_in_bounded_time():
    before = record(*(f"{number} and a word" for number in range(300)))
    after = record(*(f"{number} and a word" for number in range(1000, 1300)))
    (found,) = compared(before, after)
    assert found.verdict == "changed"
    assert found.detail.endswith("; 300 of 300 requests")


def test_expectations():
    assert expected(record("yes"), record("oh yes")) == []
    assert expected(None, record("yes")) == []
    assert expected(record("yes"), record("no"), Expectation()) == []
    (found,) = expected(record("yes"), record("yes", "no"))
    assert (found.verdict, found.before, found.after) == ("worse", "1 of 1 kept", "1 of 2 kept")
    assert found.detail == "does not contain 'yes'"
    (new,) = expected(None, record("no"))
    assert (new.verdict, new.before) == ("worse", "")
    assert expected(record("no"), record("yes"))[0].verdict == "better"
    assert expected(record("no"), record("no"))[0].verdict == "known"


def test_expectations_that_are_kept_less_often():
    often = record(*["yes"] * 15, "no")
    (found,) = expected(often, record(*["yes"] * 2, *["no"] * 12))
    assert found.verdict == "worse"
    assert found.p < 0.001
    assert expected(often, record(*["yes"] * 13, *["no"] * 2))[0].verdict == "known"
