"""Keys and scopes: what changes an answer changes them, whatever the fields hold; nothing else does."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimodal.cache.keys import normalised, question
from trimodal.cache.values import Question

# What injections are made of: separators, NULs, JSON, length prefixes, confusables, marks and surrogates.
PIECES = (
    "\0", "\x1f", "|", ":", ",", '"', '","', '{"role":"user","content":"x"}', "[]", "\\", "\\u0000", "prompt",
    "chat", "user", "\x00\x00\x00\x00\x00\x00\x00\x01", "a", "а", "é", "e\u0301", "\u202e", "\u200b",
    "\ufb01", "fi", "\ud83d", "\ude00", "😀", " ", "\n", "\r\n", "tenant=b",
)  # fmt: skip
TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=4).map("".join),
    st.text(st.characters(), max_size=12),
)
ROLES = ("system", "user", "assistant", "tool")
CHATS = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(ROLES), "content": TEXTS}), min_size=1, max_size=5
)
FIELDS = st.fixed_dictionaries(
    {
        "fingerprint": st.sampled_from(["0" * 16, "f" * 16]),
        "tenant": TEXTS,
        "namespace": st.one_of(st.sampled_from(["default", "live", "faq"]), TEXTS),
        "temperature": st.sampled_from([0.0, 0.5, 0.7]),
        "top_p": st.sampled_from([1.0, 0.9]),
        "top_k": st.sampled_from([0, 1, 10]),
        "seed": st.sampled_from([None, 0, 1]),
        "min_p": st.sampled_from([0.0, 0.1]),
        "penalties": st.sampled_from([(0.0, 0.0, 1.0), (0.5, 0.0, 1.0), (0.0, 0.5, 1.0), (0.0, 0.0, 1.5)]),
        "stops": st.lists(TEXTS, max_size=3).map(tuple),
        "verbatim": st.booleans(),
    }
)
REQUESTS = st.one_of(
    st.tuples(FIELDS, st.none(), CHATS), st.tuples(FIELDS, TEXTS.filter(bool), st.none())
).map(lambda parts: {**parts[0], "prompt": parts[1], "messages": parts[2]})


BASE: dict[str, Any] = {
    "fingerprint": "0" * 16, "tenant": "", "namespace": "", "prompt": "q", "messages": None,
    "temperature": 0.0, "top_p": 1.0, "top_k": 0, "seed": None, "stops": (),
}  # fmt: skip


def asked(request: dict[str, Any], max_tokens: int = 8) -> Question:
    return question(max_tokens=max_tokens, **request)


def last_user(messages: list[dict[str, str]]) -> int:
    return max((i for i, one in enumerate(messages) if one["role"] == "user"), default=-1)


def context(request: dict[str, Any]) -> object:
    """All that must be the same for two requests to share a scope, said in another way than the code does."""
    greedy = request["temperature"] == 0
    names = ("temperature", "top_p", "top_k", "seed", "min_p")
    sampling = None if greedy else tuple(request.get(name, 0.0) for name in names)
    sampling = (sampling, request.get("penalties", (0.0, 0.0, 1.0)), request.get("form", ("", "")))
    messages = request["messages"]
    around: object = "prompt"
    if messages is not None:
        last = last_user(messages)
        around = tuple(
            (one["role"], None if index == last else one["content"]) for index, one in enumerate(messages)
        ) + (last,)
    names = ("fingerprint", "tenant", "namespace", "stops", "verbatim")
    return (*(request[name] for name in names), sampling, around)


def said(request: dict[str, Any]) -> str:
    messages = request["messages"]
    if messages is None:
        text = request["prompt"]
    else:
        text = messages[last_user(messages)]["content"] if last_user(messages) >= 0 else ""
    return text if request["verbatim"] else unicodedata.normalize("NFC", text.replace("\r\n", "\n")).strip()


@settings(max_examples=200)
@given(REQUESTS, REQUESTS)
def test_two_requests_meet_only_when_all_that_changes_the_answer_is_equal(first, second):
    one, other = asked(first), asked(second)
    assert (one.scope == other.scope) == (context(first) == context(second))
    assert (one.scope.digest == other.scope.digest) == (context(first) == context(second))
    same = context(first) == context(second) and said(first) == said(second)
    assert (one.key == other.key) == same


@settings(max_examples=150)
@given(REQUESTS, st.data())
def test_a_change_of_any_one_field_is_another_place_or_question(request_, data):
    name = data.draw(st.sampled_from(sorted(request_)))
    if request_[name] is None and name in ("prompt", "messages"):
        return
    value = data.draw(
        {
            "fingerprint": st.sampled_from(["0" * 16, "f" * 16]),
            "tenant": TEXTS,
            "namespace": TEXTS,
            "temperature": st.sampled_from([0.5, 0.25, 1e-4]),
            "top_p": st.sampled_from([1.0, 0.9]),
            "top_k": st.integers(0, 5),
            "seed": st.sampled_from([None, 0, 1]),
            "min_p": st.sampled_from([0.0, 0.1, 0.5]),
            "penalties": st.sampled_from([(0.0, 0.0, 1.0), (0.5, 0.0, 1.0), (0.0, 0.5, 1.0)]),
            "form": st.sampled_from([("", ""), ("root", ""), ("root", "f"), ("", "f")]),
            "stops": st.lists(TEXTS, max_size=3).map(tuple),
            "verbatim": st.booleans(),
            "prompt": TEXTS.filter(bool),
            "messages": CHATS,
        }[name]
    )
    changed = {**request_, name: value}
    equal = context(changed) == context(request_) and said(changed) == said(request_)
    assert (asked(changed).key == asked(request_).key) == equal


@settings(max_examples=100)
@given(TEXTS, TEXTS, TEXTS)
def test_text_never_moves_from_one_field_into_the_next(left, moved, right):
    """The tenant "ab" in namespace "c" is not the tenant "a" in namespace "bc"; so with stop strings."""
    one = {**BASE, "tenant": left + moved, "namespace": right, "stops": (left + moved, right)}
    other = {**BASE, "tenant": left, "namespace": moved + right, "stops": (left, moved + right)}
    together = {**BASE, "tenant": left, "namespace": right, "stops": (left + moved + right,)}
    scopes = {asked(request).scope.digest for request in (one, other, together)}
    assert len(scopes) == (3 if moved else 2)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("paypal", "pаypal"),
        ("ﬁle", "file"),
        ("x²", "x2"),
        ("a\u200bb", "ab"),
        ("a\u202eb", "ab"),
        ("Ａ", "A"),
    ],
)
def test_confusables_stay_different(one, other):
    assert normalised(one) != normalised(other)


def test_composed_and_decomposed_line_ends_and_outer_blanks_are_the_same_text():
    assert normalised(" cafe\u0301\r\nau lait \n") == "café\nau lait"


def test_inner_whitespace_stays():
    assert normalised("if x:\n    y") != normalised("if x:\n  y")


def test_a_prompt_that_is_continued_as_it_stands_keeps_its_outer_blanks():
    assert asked({**BASE, "prompt": "def f():\n    ", "verbatim": True}).text == "def f():\n    "


def test_greedy_choice_ignores_what_only_sampling_reads():
    one = asked({**BASE, "temperature": 0.0, "top_p": 0.5, "top_k": 3, "seed": 7})
    assert one == asked({**BASE, "temperature": 0.0, "top_p": 1.0, "top_k": 0, "seed": None})


def test_the_length_asked_for_is_no_part_of_the_key():
    assert asked(BASE, 8).key == asked(BASE, 9).key


def test_a_megabyte_has_a_key_like_any_other():
    chat = [{"role": "system", "content": "s" * 1_000_000}, {"role": "user", "content": "u" * 1_000_000}]
    request = {**BASE, "tenant": "t" * 256, "prompt": None, "messages": chat}
    assert len(asked(request).key) == len(asked(request).scope.digest) == 64
