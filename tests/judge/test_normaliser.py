"""The one form that questions are judged in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimodal.judge.normaliser import normalise


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  What's  the\nbest COLOUR?", "what is the best color"),
        ("Why can’t I log in?", "why can i not log in"),
        ("It doesn't work, won't start", "it does not work, will not start"),
        ("whats the catalogue", "what is the catalog"),
        ("We're here and they've left", "we are here and they have left"),
        ("anaemia and haemoglobin", "anemia and hemoglobin"),
        ("organise, realised, summarising", "organize, realized, summarizing"),
        ("I practise modelling behaviours", "i practice modeling behaviors"),
        ("three kilometres to the theatre", "3 kilometers to the theater"),
        ("ｆｕｌｌ width, 5 ㎏", "full width, 5 kilograms"),
        ("Is it OK ??!", "is it okay"),
        ("What is n!?", "what is n!"),
        ("Isn´t that it?", "is that not it"),
        ("Stop it. ", "stop it"),
        ("Two of the twenty-one, asap pls", "2 of the 21, as soon as possible please"),
        ("Isn't that too much? Can't I pay?", "is that not too much? can i not pay"),
        ("Is that not too much", "is that not too much"),
        ("one of us, twofold", "one of us, twofold"),
        ("What is 10?", "what is 10"),
        ("What is C#?", "what is c#"),
    ],
)
def test_same_words_in_one_spelling(text, expected):
    assert normalise(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "rise, promise, exercise, surprise and wise advice", "for hours of your tour", "mr grey and mr gray",
        "promising treatises raise noise", "my brother's car isn his", "seymour and louise",
        "the doctor cannot",
        "10.5 % of 1,200 on 3/4/2024", "the analyses of its crises", "compromised expertise, advertised",
        "the_colour of colour2",
    ],
)  # fmt: skip
def test_other_words_stay(text):
    assert normalise(text) == text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("what is 2²", "what is 22"), ("1½ cups", "11⁄2 cups"), ("10⁻³", "10-3"), ("x₁2", "x12"),
        ("can I", "can't I"), ("I do", "I don't"), ("Mr Grey", "Mr Gray"),
        ("3,5", "35"), ("а lambda", "a lambda"), ("what is 5!?", "what is 5?"), ("ls .", "ls"), ("!", "?"),
        ("for 2²!", "for 2²"), ("exam", "examiner"), ("40 cm", "40 mm"), ("US", "UK"),
        ("what is n!", "what is n"), ("what is fifty-five", "what is 50-5"),
        ("wo läuft `date`", "wo läuft 'date'"),
    ],
)  # fmt: skip
def test_what_differs_stays_apart(one, other):
    assert normalise(one) != normalise(other)


@given(st.text(max_size=40) | st.text("aeinst'ʼ’ ²½Ⅷ1İßs-", max_size=30))
def test_again_changes_nothing(text):
    once = normalise(text)
    assert normalise(once) == once


@given(st.text("0123456789²½.,-+ ", max_size=30))
def test_digits_stay(text):
    assert normalise(text) == " ".join(text.split())
