import pytest

from trimodal.audio.word_errors import normalise, word_error_rate


def test_texts_are_compared_by_their_words_alone():
    assert normalise("  What’s a “list”, forty-two?\n") == "whats a list forty two"
    assert word_error_rate(["What is it?"], [" what IS, it"]) == 0


def test_errors_of_all_texts_over_the_words_of_all():
    # One missing, one wrong, one added: three errors in five words.
    assert word_error_rate(["a b c", "d e"], ["a c", "x e f"]) == pytest.approx(3 / 5)
    assert word_error_rate(["a b"], [""]) == 1
