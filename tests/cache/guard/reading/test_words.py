"""How the guard reads words: spelling, numbers, units, dates, frames, dictionary forms and their groups."""

from itertools import combinations

import pytest

from trimodal.cache.guard.lexicon.lexicon import GROUPS, keys, lemma, opposite
from trimodal.cache.guard.reading.dates import dated
from trimodal.cache.guard.reading.frames import RULES, framed
from trimodal.cache.guard.reading.numbers import numbered
from trimodal.cache.guard.reading.reader import read
from trimodal.cache.guard.reading.units import UNITS
from trimodal.cache.guard.reading.words import MAX_WORDS, NotEnglish, words


def values(text):
    return [word for word in numbered(dated(words(text))) if word[1:2] == ":" or word == "every"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What does os.path.join() do?", ["what", "does", "=os.path.join", "do", "|"]),
        ("How don't I use C++ or C#?", ["how", "do", "not", "i", "use", "=C++", "or", "=C#", "|"]),
        ("what's := for", ["what", "is", "=:=", "for", "|"]),
        ("Does “Redis” run?", ["does", "^redis", "run", "|"]),
        ("the dog's house", ["the", "dog", "'s", "house", "|"]),
        ("two-factor e-mail", ["two", "factor", "email", "|"]),
        ("vitamin A, plan b", ["vitamin", "=a", ",", "plan", "=b", "|"]),
        ("HOW DO I RESET IT", ["how", "do", "i", "reset", "it", "|"]),
        ("grep -V x", ["grep", "=-V", "=x", "|"]),
        ("VMs and PDFs", ["^vm", "and", "^pdf", "|"]),
    ],
)
def test_names_and_code_are_marked(text, expected):
    assert words(text) == expected


@pytest.mark.parametrize("text", ["ok " * (MAX_WORDS + 1), "привет", "naïve 日本", "x" * 2000])
def test_other_scripts_and_long_texts_are_not_read(text):
    with pytest.raises(NotEnglish):
        words(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2 weeks", "fourteen days"),
        ("half an hour", "30 minutes"),
        ("one and a half hours", "90 min"),
        ("an hour and a half of it", "5400 seconds"),
        ("1.5 kg", "1500 grams"),
        ("0.25 kg", "two hundred and fifty grams"),
        ("$5", "5 dollars"),
        ("50%", "fifty percent"),
        ("1,000 users", "1000 users"),
        ("10k", "ten thousand"),
        ("a dozen", "12"),
        ("3rd", "third"),
        ("350 °F", "350 degrees Fahrenheit"),
        ("16 oz", "1 pound"),
        ("12 months", "1 year"),
        ("weekly", "every week"),
        ("per month", "a month"),
        ("May 3rd 2024", "May 3, 2024"),
        ("5pm", "17:00"),
        ("5 p.m.", "5pm"),
        ("noon", "12:00"),
        ("Mondays", "monday"),
    ],
)
def test_the_same_amount_or_date_is_the_same(one, other):
    assert values(one) == values(other) != []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("3.10", "3.1"),
        ("1 month", "30 days"),
        ("1 GB", "1024 MB"),
        ("2 lb", "2 kg"),
        ("5pm", "5am"),
        ("3/4/2024", "4/3/2024"),
        ("1/2", "2/1"),
        ("-5", "5"),
        ("1990s", "1990"),
        ("in a week", "times a week"),
        ("10 Mbit", "10 MB"),
        ("the second", "30 seconds"),
    ],
)
def test_what_is_not_certainly_the_same_is_not(one, other):
    assert values(one) != values(other)


def test_may_is_a_month_only_where_it_is_used_like_one():
    assert dated(words("it may rain in may"))[1:] == ["may", "rain", "in", "d:month5", "|"]


def test_every_unit_has_a_size():
    assert all(factor > 0 and dimension for dimension, factor in UNITS.values())


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("How do I reset it?", "@how"),
        ("what's the best way to reset it", "@how"),
        ("Could you please tell me how to reset it?", "@how"),
        ("I want to reset it", "@wish"),
        ("Why is it red?", "@why"),
        ("What is the reason that it is red?", "@why"),
        ("at what time does it open", "@when"),
        ("in which year was it built", "@when"),
        ("How many eggs are there?", "@many"),
        ("Which gas is it?", "@what"),
        ("Explain the gas", "@what"),
        ("by whom was it built", "@who"),
    ],
)
def test_the_ways_to_ask_the_same_become_one(text, asks):
    assert asks in read(text).asks


def test_frames_leave_names_alone():
    assert framed(words("Does IT say so to The Who?"))[-5:] == ["so", "to", "^the", "^who", "|"]


def test_rules_are_written_once():
    patterns = [pattern for pattern, _ in RULES]
    assert len(set(patterns)) == len(patterns)


@pytest.mark.parametrize(
    ("form", "base"),
    [
        ("cancelled", "cancel"),
        ("canceling", "cancel"),
        ("baking", "bake"),
        ("colours", "color"),
        ("organisation", "organization"),
        ("windows", "windows"),
        ("found", "find"),
        ("dicts", "dict"),
        ("better", "good"),
    ],
)
def test_dictionary_forms(form, base):
    assert lemma(form) == lemma(base) or lemma(form) == base


def test_no_group_has_two_words_that_say_the_opposite():
    members = {}
    for word, numbers in GROUPS.items():
        for number in numbers:
            members.setdefault(number, []).append(word)
    wrong = [pair for group in members.values() for pair in combinations(group, 2) if opposite(*pair)]
    assert wrong == []


def test_opposites_by_the_list_and_by_prefix():
    assert opposite("enable", "disable")
    assert opposite("disable", "enable")
    assert opposite("lock", "unlock")
    assert opposite("encrypt", "decrypt")
    assert not opposite("lock", "key")


def test_like_words_share_a_key():
    assert keys("remove") & keys("delete")
    assert not keys("remove") & keys("add")
    assert not keys("update") & keys("upgrade")
