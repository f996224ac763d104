"""How long a silence ends a turn."""

from __future__ import annotations

import pytest

from trimodal.gateway.realtime.hearing.endpoint import (
    LONGEST_S,
    PAUSE_S,
    is_backchannel,
    silence_s,
    spoken,
)


@pytest.mark.parametrize("eagerness", LONGEST_S)
def test_a_finished_sentence_ends_at_once_and_a_clear_pause_takes_the_longest(eagerness: str) -> None:
    assert silence_s(0.95, "What is this?", eagerness) == PAUSE_S
    assert silence_s(0.0, "What is", eagerness) == LONGEST_S[eagerness]
    waits = [silence_s(step / 20, "well", eagerness) for step in range(21)]
    assert waits == sorted(waits, reverse=True)


def test_who_is_eager_waits_less() -> None:
    low, medium, high = (silence_s(0.25, "well", one) for one in ("low", "medium", "high"))
    assert low > medium > high
    assert medium == silence_s(0.25, "well", "auto")


@pytest.mark.parametrize("words", ["bread, milk and", "I want to go to the", "First,", "It is…", "so"])
def test_a_sentence_that_goes_on_is_waited_for(words: str) -> None:
    assert silence_s(0.95, words, "medium") == LONGEST_S["medium"]


@pytest.mark.parametrize("words", ["", "Is that what this is for?", "Thank you.", "Brand"])
def test_others_are_not(words: str) -> None:
    assert silence_s(0.95, words, "medium") == PAUSE_S


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
