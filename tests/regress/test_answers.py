import pytest

from tests.regress.runs import record
from trimodal.regress.answers import compare_answers, compare_cache, compare_expectations, overlap
from trimodal.regress.schema import Expectation
from trimodal.regress.values import RecordedAnswer

CONTAINS = Expectation(contains="yes")
REFUSED = RecordedAnswer(text="the queue is full", error="UNAVAILABLE")


def compared(before, after, *, expected=False, overlap=1.0):
    return compare_answers("c", before, after, overlap, 0.05, expected=expected)


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


def test_a_refusal_that_was_recorded_hides_no_more_of_them():
    before = record(*["yes"] * 10, REFUSED)
    (found,) = compared(before, record(*[REFUSED] * 11))
    assert (found.verdict, found.before, found.after) == ("worse", "1 of 11 refused", "11 of 11 refused")
    assert found.detail == "UNAVAILABLE: the queue is full"
    assert compared(before, record(*["yes"] * 9, REFUSED, REFUSED)) == []
    assert compared(record(REFUSED), record(REFUSED, REFUSED)) == []


def test_labels():
    def seen(*labels):
        return record(RecordedAnswer(labels=labels), task="vision")

    before = seen(("7", 0.9), ("1", 0.1))
    (found,) = compared(before, seen(("1", 0.6), ("7", 0.4)))
    assert (found.verdict, found.before, found.after) == ("worse", "7 0.900", "1 0.600")
    assert compared(before, seen(("1", 0.6), ("7", 0.4)), expected=True)[0].verdict == "changed"
    assert compared(before, seen(("7", 0.86), ("1", 0.14))) == []
    assert compared(before, seen(("7", 0.8))) == []
    spoken = RecordedAnswer(text="yes", labels=(("1", 0.9),))
    assert compared(before, record(spoken))[1].detail == "another label; 1 of 1 requests"


def test_vectors():
    def made(*numbers):
        return record(RecordedAnswer(vector=numbers), task="embedding")

    before = made(1.0, 0.0)
    assert compared(before, made(0.9995, 0.03)) == []
    (found,) = compared(before, made(0.9, 0.43589))
    assert (found.verdict, found.detail) == ("worse", "cosine 0.90000; 1 of 1 requests")
    assert compared(before, made(1.0, 0.0, 0.0))[0].after == "3 numbers"
    assert compared(before, made(1.0, 0.0, 0.0))[0].verdict == "worse"
    assert compared(before, made(0.0, 0.0))[0].verdict == "worse"


def test_control_characters_are_not_shown():
    (found,) = compared(record("\x1b[31mred\n"), record("\x07 \u202egreen"))
    assert (found.before, found.after) == ("�[31mred", "� �green")


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


@pytest.mark.parametrize(
    ("before", "after", "verdicts"),
    [
        (("", "exact"), ("", "exact"), []),
        (("", ""), ("", ""), []),
        (("exact", "exact"), ("", "exact"), []),
        (("", "exact"), ("", ""), [("worse", "exact → generated")]),
        (("", ""), ("", "exact"), [("better", "generated → exact")]),
        (("exact",), ("semantic",), [("changed", "exact → semantic")]),
    ],
)
def test_the_last_request_says_whether_the_cache_answers(before, after, verdicts):
    found = compare_cache("c", record(cache=before), record(cache=after))
    assert [(one.verdict, one.detail) for one in found] == verdicts


@pytest.mark.parametrize(
    ("first", "second", "likeness"),
    [
        ("the  same\nwords", "the same words", 1),
        ("one two three four", "one two three", 2 * 3 / 7),
        ("alpha", "beta", 0),
        ("", "", 1),
        ("", "something", 0),
        ("from Paris to London", "from London to Paris", 0.5),
        ("Enable it", "enable it", 0.5),
        ("wait 5 minutes", "wait 15 minutes", 2 / 3),
        ("is it 5?", "is it 5!", 0.75),
        ("今日は良い天気です", "今日は悪い天気です", 8 / 9),
        ("the cat and the dog " * 60, "a cat and a dog " * 60, 0.6),  # a frequent word counts
    ],
)
def test_overlap(first, second, likeness):
    assert overlap(first, second) == pytest.approx(likeness)
