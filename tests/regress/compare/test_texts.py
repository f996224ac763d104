import sys

import pytest

from trimodal.errors import OperatorError
from trimodal.regress.compare.answers import overlap
from trimodal.regress.golden.schema import word_errors


def test_overlap():
    assert overlap("the same words", "the same words") == 1
    assert overlap("the  same\nwords", "the same words") == 1
    assert overlap("one two three four", "one two three") == pytest.approx(2 * 3 / 7)
    assert overlap("alpha", "beta") == 0
    assert overlap("", "") == 1
    assert overlap("", "something") == 0


def test_overlap_sees_order_case_signs_and_numbers():
    assert overlap("from Paris to London", "from London to Paris") < 1
    assert overlap("Enable it", "enable it") < 1
    assert overlap("is it 5?", "is it 5!") < 1
    assert overlap("wait 5 minutes", "wait 15 minutes") < 1


def test_overlap_without_spaces_between_words():
    assert 0.7 < overlap("今日は良い天気です", "今日は悪い天気です") < 1


def test_a_word_that_is_frequent_counts():
    long = "the cat and the dog " * 60
    assert overlap(long, long.replace("the", "a")) == pytest.approx(0.6)


def test_word_errors():
    pytest.importorskip("jiwer")
    assert word_errors("What's that?", "whats that") == 0
    assert word_errors("one two three four", "one two tree four five") == pytest.approx(2 / 4)
    assert word_errors("", "") == 0
    assert word_errors(" ...", "noise") == 1


def test_word_errors_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "jiwer", None)
    with pytest.raises(OperatorError, match=r"word error rates need jiwer: pip install 'trimodal\[audio\]'"):
        word_errors("one", "two")
