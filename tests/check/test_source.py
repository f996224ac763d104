from __future__ import annotations

import pytest

from trimodal.check.source import Malformed, Node, SourcePosition, ignored_rules, read_fields

TEXT = """# a comment with { brackets
backend: "python"
input [
  { name: "a" dims: [ 1, 2 ] },
  { name: 'b # {' dims: 3 dims: [ ] }
]
dynamic_batching < preferred_batch_size: [ 4,
  8 ] >
parameters { key: "x" "y", value: { string_value: "1" }; }
"""


@pytest.fixture
def root() -> Node:
    return read_fields(TEXT)


@pytest.mark.parametrize(
    ("path", "position"),
    [
        (("backend",), (2, 1)),
        (("input",), (4, 3)),
        (("input", 1), (5, 3)),
        (("input", 0, "dims", 1), (4, 26)),
        (("input", 1, "dims", 0), (5, 19)),
        (("dynamic_batching", "preferred_batch_size", 1), (8, 3)),
        (("parameters", 0, "value", "string_value"), (9, 37)),
        # What is not written stands where the message that lacks it does.
        (("dynamic_batching", "max_queue_delay_microseconds"), (7, 1)),
        (("input", 1, "reshape", "shape"), (5, 3)),
        (("input", 2), (1, 1)),
        (("output",), (1, 1)),
    ],
)
def test_the_position_of_a_field(root: Node, path: tuple[str | int, ...], position: tuple[int, int]) -> None:
    assert root.find(path).position == SourcePosition(*position)


def test_values_are_as_written(root: Node) -> None:
    assert root.find(("parameters", "key")).value == '"x""y"'
    assert root.find(("input", 1, "name")).value == "'b # {'"
    assert read_fields("a: -5").fields[0].value == "-5"


@pytest.mark.parametrize(
    ("text", "position", "what"),
    [
        ("a {\n  b: 1\n", (2, 6), "} is missing"),
        ("a: 1\n}\n", (2, 1), "} stands where a field's name"),
        ("a:\n", (1, 2), "the file ends"),
        ("a: }", (1, 4), "a has no value"),
        ("a: [ 1 2 ]", (1, 8), ", is expected before 2"),
        ('a: "x\ny"', (1, 4), "a has no value"),
        ('a: "\\q"', (1, 4), "unknown escape"),
        ("\ufeffa: 1", (1, 1), "byte order mark"),
        ("a { " * 1000, (1, 201), "more than 50 brackets"),
    ],
)
def test_what_is_no_message(text: str, position: tuple[int, int], what: str) -> None:
    with pytest.raises(Malformed, match=what) as caught:
        read_fields(text)
    assert caught.value.position == SourcePosition(*position)


def test_suppressions() -> None:
    text = (
        "a: 1  # trimodal: ignore[TRI001]\n"
        "# known; trimodal: ignore[TRI002, TRI003]\n"
        "b: 2  # trimodal: ignore[TRI004]\n"
        "c: 3  # trimodal ignores this\n"
    )
    assert ignored_rules(text) == {1: {"TRI001"}, 3: {"TRI002", "TRI003", "TRI004"}}


def test_a_form_feed_ends_no_line():
    assert ignored_rules("a\n\x0c\n# \u2028\nb  # trimodal: ignore[TRI114]\n") == {4: {"TRI114"}}
