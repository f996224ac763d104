"""Regular expressions as expressions of a grammar: what is drawn from them matches, in its length."""

from __future__ import annotations

import json
import re

import pytest

from tests.llm.structured.sentences import Sentences
from trimodal.llm.structured.grammar import Grammar
from trimodal.llm.structured.json_schema.patterns import _but, pattern_expression

PATTERNS = [
    ("^[a-z]+$", 3, 10, True),
    ("abc", 0, None, True),
    ("abc", 5, 9, False),  # what stands before and behind it shares the length
    (r"^\+?[1-9]\d{1,14}$", 0, None, True),
    ("^(a|b)*$", 0, None, True),
    ("^a|b$", 0, None, True),
    (r"^$|^\d+$", 0, 5, True),
    ("^a$|^ab$|^ac|d$", 0, None, True),
    ("(^a$|^(b|c)*$)", 0, 4, True),
    ("^S_", 4, 10, True),
    ('[^"\\\\]\n$', 0, None, True),
    (r"^\w+([.-]?\w+)*@\w+([.-]?\w+)*(\.\w{2,3})+$", 0, None, True),
    (r"^(?<year>\d{4})-x$", 0, None, True),
    (".*", 0, 5, True),
    ("^$", 0, None, True),
    ("^(a*)*$", 0, None, True),
    ("^[A-Z][a-z]*$", 5, None, True),
    (r"^[^\d\s]\S\D$", 0, None, True),
    ("^[^b-dc-xa\U0010ffff]$", 0, None, True),
    ("^[\\u00e0-\\u0150]{2}é?日+$", 0, None, True),
    (r'^"\\/[\t]$', 0, None, True),
    ("^(?:(?:ab){2}|c{0,3}?)d$", 0, None, True),
]


@pytest.mark.parametrize(("pattern", "least", "most", "kept"), PATTERNS, ids=[one[0] for one in PATTERNS])
def test_what_is_drawn_matches(pattern: str, least: int, most: int | None, kept: bool) -> None:
    grammar = Grammar()
    expression, held = pattern_expression(grammar, pattern, least, most)
    assert held == kept
    made = Sentences(grammar.text(f'"\\"" {expression} "\\""'))
    found = re.compile(pattern.replace("(?<y", "(?P<y"))
    for seed in range(60):
        text = json.loads(made.draw(seed))
        assert found.search(text), text
        assert not held or least <= len(text) <= (most or len(text))


def test_a_class_of_all_but_many_characters_is_read_in_one_pass() -> None:
    """Those of 54 KB kept a processor for half a minute."""
    many = [(0x20000 + 2 * place,) * 2 for place in range(60_000)]
    assert len(_but(many)) == len(many) + 1


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(?=a)b", "look-around"), ("(?<!a)b", "look-around"), (r"(a)\1", "back reference"),
        (r"\bfoo", "an anchor or a boundary inside"), ("a(b|$)", "an anchor or a boundary inside"),
        ("(?i)a", "flags"), ("(?i:a)", "flags"), ("(", "no regular expression"), (r"\p{L}", "no regular"),
        ("^.{5000}$", "repeats 5000 times"), ("^(a{100}){100}$", "repeats 100 times"),
        ("(" * 3000, "no regular expression"), ("^a{3}$", "leaves no text of 0 to 2 characters"),
        (r"[^\s\S]", "a class without any character"), ("." * 60_000, "has 60000 characters: at most 8192"),
    ],
)  # fmt: skip
def test_what_no_grammar_says_is_named(pattern: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        pattern_expression(Grammar(), pattern, 0, 2 if "{3}" in pattern else None)
