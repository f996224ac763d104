"""The words of a live stream as they are committed and corrected."""

from __future__ import annotations

from trimodal.audio.live_words import LiveWords
from trimodal.audio.values import Correction, Word


def words(text: str) -> tuple[Word, ...]:
    return tuple(Word(f" {word}", number, number + 0.5, 0.9) for number, word in enumerate(text.split()))


def test_a_corrections_words_are_in_place_of_those_it_names() -> None:
    live = LiveWords()
    live.add(words("one two howdy mary"), [Correction(2, 2, words("had he married"))])
    live.add(words("a"))
    assert live.text == " one two had he married a"
    assert [word.text for word in live.words] == [" one", " two", " had", " he", " married", " a"]


def test_a_later_correction_goes_before_an_earlier_one() -> None:
    live = LiveWords()
    live.add(words("howdy mary"), [Correction(0, 2, words("had he married"))])
    live.add(words("the more"), [Correction(0, 4, words("had he married a more"))])
    assert live.text == " had he married a more"
    live.add(words("woman"))
    assert live.text == " had he married a more woman"


def test_a_correction_that_names_more_words_than_there_are_ends_at_the_last() -> None:
    live = LiveWords()
    live.add(words("howdy mary"), [Correction(1, 1 << 40, words("married"))])
    live.add(words("a"))
    assert live.text == " howdy married a"


def test_what_was_taken_out_stays_as_it_was() -> None:
    live = LiveWords()
    live.add(words("one two three"))
    assert [word.text for word in live.take(keep=1)] == [" one", " two"]
    live.add(words("four"), [Correction(0, 4, words("won to tree for")), Correction(2, 2, words("tree for"))])
    assert live.text == " tree for"
    assert [word.text for word in live.take()] == [" tree", " for"]
    live.add((), [Correction(3, 1, words("four"))])
    assert live.words == ()
