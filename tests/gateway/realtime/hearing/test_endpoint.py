"""How long a silence ends a turn."""

from __future__ import annotations

import pytest

from trimodal.gateway.realtime.hearing.endpoint import (
    LONGEST_S,
    PAUSE_S,
    UNKNOWN_S,
    is_backchannel,
    silence_s,
    spoken,
)

PROBABILITIES = [step / 20 for step in range(21)]


@pytest.mark.parametrize("eagerness", LONGEST_S)
@pytest.mark.parametrize("complete", [True, None, False])
def test_the_less_a_turn_sounds_over_the_longer_it_is_waited(complete: bool | None, eagerness: str) -> None:
    waits = [silence_s(finished, complete, "well", eagerness) for finished in PROBABILITIES]
    assert waits == sorted(waits, reverse=True)
    assert waits[-1] >= PAUSE_S
    assert waits[0] <= LONGEST_S[eagerness]


@pytest.mark.parametrize("finished", PROBABILITIES)
def test_a_whole_sentence_ends_sooner_than_words_of_which_nothing_is_known_and_those_than_a_part(
    finished: float,
) -> None:
    whole, unknown, part = (silence_s(finished, one, "well", "auto") for one in (True, None, False))
    assert whole < unknown <= part


def test_a_part_of_a_sentence_is_waited_for_longer_than_most_pauses() -> None:
    assert silence_s(1.0, False, "Please leave", "auto") >= 1.2
    assert silence_s(1.0, True, "Please leave a message.", "auto") == pytest.approx(0.3)


def test_a_part_whose_last_word_cannot_end_a_sentence_is_waited_for_longest() -> None:
    """A voice may well sink there: "Please enter your" sounded over (0.92) and was answered after 1.2 s."""
    assert silence_s(0.92, False, "Please enter your", "auto") == pytest.approx(2.0)
    assert silence_s(0.92, False, "Please enter", "auto") < 1.3
    assert silence_s(0.92, True, "Is it your", "auto") == pytest.approx(0.3), "the model has read it all"


def test_who_is_eager_waits_less() -> None:
    for complete in (True, None, False):
        low, medium, high = (silence_s(0.25, complete, "well", one) for one in ("low", "medium", "high"))
        assert low > medium > high
        assert medium == silence_s(0.25, complete, "well", "auto")


def test_without_the_model_of_turns_a_silence_ends_one() -> None:
    assert silence_s(None, True, "Yes.", "low") == UNKNOWN_S


@pytest.mark.parametrize("words", ["bread, milk and", "I want to go to the", "First,", "It is…", "so"])
def test_where_nobody_judges_the_words_a_sentence_that_goes_on_is_waited_for(words: str) -> None:
    assert silence_s(0.95, None, words, "medium") == silence_s(0.95, False, words, "medium")


@pytest.mark.parametrize("words", ["", "Is that what this is for?", "Thank you.", "Brand"])
def test_others_are_not(words: str) -> None:
    assert silence_s(0.95, None, words, "medium") < silence_s(0.95, False, words, "medium")


def test_words_are_compared_by_ear() -> None:
    assert spoken("What's THIS, then?") == spoken("what’s this then") == ("what's", "this", "then")
    assert spoken("What is it?") != spoken("What is it for?")


@pytest.mark.parametrize(
    ("said", "only"),
    [
        *[(said, True) for said in ("Mhm.", "Yeah, yeah!", "Uh-huh")],
        *[(said, False) for said in ("Stop!", "yeah but why", "Oh oh oh oh")],
    ],
)
def test_backchannels(said: str, only: bool) -> None:
    assert is_backchannel(said) is only
