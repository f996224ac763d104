"""The guard as the cache calls it: what it keeps apart, what it lets pass, and that nothing breaks it."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trimodal
from tests.cache.guard.cases import KEPT_APART, LET_PASS
from trimodal.cache.guard.guard import REASONS, Guard

GUARD = Guard()
TUNE = Path(trimodal.__file__).parent / "bench" / "cache" / "data" / "tune.jsonl"


def both_ways(pairs):
    return [
        (*pair, GUARD.judge(*pair)) for asked, stored in pairs for pair in ((asked, stored), (stored, asked))
    ]


def test_near_questions_with_another_answer_are_kept_apart():
    assert [case for case in both_ways(KEPT_APART) if case[2] not in REASONS] == []


def test_paraphrases_pass_both_ways():
    assert [case for case in both_ways(LET_PASS) if case[2]] == []


@pytest.mark.parametrize(
    ("asked", "stored", "reason"),
    [
        ("Can I pay for 3 users?", "Can I pay for 4 users?", "number"),
        ("Boil it for 3 minutes?", "Boil it for 3 hours?", "unit"),
        ("Is it open on Monday?", "Is it open on Friday?", "date"),
        ("How do I install Redis?", "How do I install Kafka?", "name"),
        ("Which mushrooms are edible?", "Which mushrooms are not edible?", "negation"),
        ("How do I enable sync?", "How do I disable sync?", "antonym"),
        ("Fly from Rome to Oslo", "Fly from Oslo to Rome", "roles"),
        ("How do I clean a sofa?", "How do I clean a carpet?", "subject"),
    ],
)
def test_the_reason_says_what_differs(asked, stored, reason):
    assert GUARD.judge(asked, stored) == reason


def test_the_tuning_part_has_no_false_hit_and_many_hits():
    passed = Counter()
    seen = Counter()
    for line in TUNE.read_text(encoding="utf-8").splitlines():
        pair = json.loads(line)
        seen[pair["label"]] += 1
        passed[pair["label"]] += GUARD.judge(pair["a"], pair["b"]) == ""
    assert passed["different"] == 0 < seen["different"]
    assert passed["same"] > 0.3 * seen["same"]


@pytest.mark.parametrize(
    "text",
    [
        "Wie setze ich mein Passwort zurück?",
        "パスワードをリセットするには",
        "Как сбросить пароль?",
        "word " * 65,
        "x" * 700,
        "",
        "?!",
        "\ud800",
        "\x00",
        "\u202eabc\u202c",
    ],
)
def test_what_cannot_be_read_passes_only_when_it_is_the_same(text):
    assert GUARD.judge(text, text) == ""
    assert GUARD.judge(text, "How do I reset my password?") != ""
    assert GUARD.judge(text + " a", text + " b") != ""


def test_letters_that_look_alike_are_other_letters():
    assert (
        GUARD.judge("How do I install rеdis?", "How do I install redis?") != ""
    )  # the first has a Cyrillic е


@settings(max_examples=300)
@given(st.text(max_size=120), st.text(max_size=120))
def test_any_texts_get_an_answer_that_is_the_same_both_ways(one, other):
    assert GUARD.judge(one, one) == ""
    assert (GUARD.judge(one, other) == "") == (GUARD.judge(other, one) == "")


@settings(max_examples=200)
@given(
    st.sampled_from(KEPT_APART + LET_PASS),
    st.integers(2, 10**6),
    st.integers(2, 10**6),
)
def test_another_number_is_another_question(pair, one, other):
    text = f"{pair[0].rstrip('?')} for {{}} people"
    verdict = GUARD.judge(text.format(one), text.format(other))
    assert verdict == ("" if one == other else "number")


@given(st.sampled_from([pair for pair in KEPT_APART if len(pair[0].split()) > 3]), st.data())
@settings(max_examples=200)
def test_a_question_with_another_name_in_it_is_another_question(pair, data):
    names = ["Anna", "Bruno", "Oslo", "Kafka", "Quito", "Lisbon"]
    one, other = data.draw(st.permutations(names))[:2]
    assert GUARD.judge(f"{pair[0].rstrip('?')} with {one}", f"{pair[0].rstrip('?')} with {other}") != ""


def test_threads_share_a_guard():
    pairs = KEPT_APART + LET_PASS
    with ThreadPoolExecutor(8) as pool:
        verdicts = list(pool.map(lambda pair: Guard().judge(*pair) == "", pairs))
    assert verdicts == [False] * len(KEPT_APART) + [True] * len(LET_PASS)
