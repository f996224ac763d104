"""What is read as a mistake or an abbreviation of a word of the other question, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from trimodal.judge import readings
from trimodal.judge.normaliser import normalise
from trimodal.judge.readings import alike, known_words, read

WORDS = (
    "password change recipe receipt insured insurer install installed paid department appointment cat cattle "
    "hours please cognitive behavioral therapy patel temperature weather whether ##ing [CLS] roasting"
    " xiii victims volumes passwords arguments weeks"
)
KNOWN = known_words(WORDS.split())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How do I change my pasword?", "How do I change my password?"),  # missing
        ("How do I change my passwoord?", "How do I change my password?"),  # too many
        ("How do I change my pazsword?", "How do I change my password?"),  # another one
        ("How do I change my passwrod?", "How do I change my password?"),  # changed places
        ("can I chnage it", "Can I change it?"),
        ("my appt in the dept", "My appointment in the department?"),
        ("How many hrs?", "how many hours"),
        ("these args for 3 wks", "these arguments for 3 weeks"),
        ("What does CBT do?", "What does cognitive behavioral therapy do?"),
        ("Do it asap", "do it as soon as possible"),
        ("Who was in the USA?", "who was in the United States of America"),
        ("Is DIY cheaper?", "Is do it yourself cheaper?"),
        ("How Do I Change My Pasword", "how do i change my password"),  # capitals throughout are no names
        ("HOW DO I CHANGE MY 2 PASWORDS, PLEASE", "how do i change my 2 passwords, please"),
    ],
)
def test_mistakes_and_abbreviations_are_read(one: str, other: str) -> None:
    first, second = read(one, other, KNOWN)
    assert first == second
    assert read(other, one, KNOWN) == (second, first)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Where is my recipe?", "Where is my receipt?"),  # two words that there are
        ("how do i reinstalled it", "how do i reinstall it"),  # an ending says when
        ("who is insurers", "who is insured"),
        ("Is Dr Patil in?", "Is Dr Patel in?"),  # names
        ("Who was Louis XVIII?", "Who was Louis XIII?"),
        ("Are 2 VMs lost?", "Are 2 victims lost?"),
        ("may i sit in it", "may i be seen in the car"),  # sit: not seen in the
        ("can it be so", "can insured testers be so"),  # a small word is no abbreviation
        ("what is ipv4", "what is ipv6"),
        ("how is the x-ray", "how is the x-rays"),
        ("feed my cat", "feed my cattle"),
        ("CBT for me", "cognitive therapy for me"),
        ("How do I clean my cat?", "How do I clean my car and truck?"),
        ("Where is my PC?", "Where is my pin code?"),
        ("the wether", "weather or whether"),  # several candidates
        ("how do i delete vms", "how do i delete volumes"),  # of two plurals the last letter says nothing
    ],
)
def test_other_words_stay(one: str, other: str) -> None:
    first, second = read(one, other, KNOWN)
    assert first != second
    assert (first, second) == (read(one, "", KNOWN)[0], read(other, "", KNOWN)[0])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("well, why is that; tell me", "well why is that. tell me", True),
        ("it works...", "it works", True),
        ("3,5 or 3 5", "3 5 or 3 5", False),
        ("is it 5, 6 or 7", "is it 5 6 or 7", False),
        ("re-sign it", "resign it", False),
        ("ls .", "ls", False),
        ("what does sort! do", "what does sort do", False),
    ],
)
def test_punctuation_between_words_is_nothing(one: str, other: str, same: bool) -> None:
    assert alike(one, other) is same


def test_what_is_too_long_to_be_judged_is_only_normalised() -> None:
    one = " ".join(f"wrd{chr(97 + number % 26)}x{'y' * (number % 9)}" for number in range(1000))
    other = "password " * 4000
    assert read(one, other, KNOWN) == (normalise(one), normalise(other))


@pytest.mark.parametrize("words", [30, 60, 79])
def test_the_work_on_initials_grows_with_the_square_of_the_words(
    words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At worst each word is tried at each word of the other question, over a few words there."""
    steps = 0

    class Counted(list[tuple[int, int, str]]):
        def __getitem__(self, index: Any) -> Any:
            nonlocal steps
            steps += 1
            return super().__getitem__(index)

    found = readings._words
    monkeypatch.setattr(readings, "_words", lambda text: Counted(found(text)))
    letters = "abcdefgh"
    one = [f"o{first}{second}{third}" for first in letters for second in letters for third in "ab"]
    read(" ".join(one[:words]), "of " * words, KNOWN)
    assert words**2 <= steps <= 30 * words**2
