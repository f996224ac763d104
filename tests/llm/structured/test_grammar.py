"""Rules of a grammar: repeats, literals, and that each is kept once."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimodal.llm.structured.grammar import MOST_REPEATS, Grammar, literal, one_text


def rules(text: str) -> dict[str, str]:
    return dict(line.split(" ::= ", 1) for line in text.splitlines())


def expanded(expression: str, made: dict[str, str]) -> str:
    """A regular expression without rules' names."""
    inside = re.sub(r"\br\d+\b", lambda name: f"(?:{expanded(made[name[0]], made)})", expression)
    return inside.replace(" ", "").replace('""', "")


@given(st.integers(0, MOST_REPEATS), st.integers(0, MOST_REPEATS), st.data())
def test_exactly_so_many_repeats(one: int, other: int, data: st.DataObject) -> None:
    least, most = sorted((one, other))
    grammar = Grammar()
    root = grammar.repeated("x", least, most)
    found = re.compile(expanded(root, rules(grammar.text(root))))
    near = [least - 1, least, least + 1, most - 1, most, most + 1]
    for count in (*near, data.draw(st.integers(0, MOST_REPEATS))):
        assert bool(found.fullmatch("x" * count)) == (least <= count <= most and count >= 0) or count < 0


def test_many_repeats_are_few_rules() -> None:
    grammar = Grammar()
    assert len(grammar.text(grammar.repeated("x", 1000, MOST_REPEATS))) < 400


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("abc", '"abc"'),
        ('a"b\\', '"a\\u0022b\\u005C"'),
        ("\n\x00é", '"\\u000A\\u0000\\u00E9"'),
        ("😀", '"\\U0001F600"'),
        ("größe", '("gr\\u00F6\\u00DF" "e")'),
        ("Ωe ß é1", '("\\u03A9e \\u00DF \\u00E9" "1")'),
    ],
)
def test_a_literal_has_only_plain_characters(text: str, written: str) -> None:
    assert literal(text) == written


def test_a_rule_is_kept_once_and_a_type_brings_what_it_needs() -> None:
    grammar = Grammar()
    assert grammar.rule("a") == grammar.rule("a") != grammar.rule("b")
    names = set(rules(grammar.text(grammar.shared("object"))))
    assert {"root", "object", "array", "pair", "value", "string", "number", "escape"} <= names
    assert "character" not in names


@given(st.lists(st.text("ab", max_size=4), min_size=1, max_size=12))
def test_each_beginning_of_several_texts_is_written_once(texts: list[str]) -> None:
    expression = one_text(texts)
    found = re.compile(expression.replace(" ", "").replace('"', ""))
    for length in range(5):
        for number in range(2**length):
            text = f"{number:0{length}b}".translate({48: "a", 49: "b"}) if length else ""
            assert bool(found.fullmatch(text)) == (text in texts)
    # No two alternatives of a bracket begin alike.
    for bracket in re.findall(r"\(([^()]*)\)", expression):
        firsts = [one.strip('"')[:1] for one in bracket.split(" | ")]
        assert len(set(firsts)) == len(firsts)


def test_texts_that_begin_with_each_other_are_bounded() -> None:
    with pytest.raises(ValueError, match="more than 64 texts that begin with each other"):
        one_text("a" * length for length in range(70))
