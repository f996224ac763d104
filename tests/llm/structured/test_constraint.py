"""What a request says of its answer's form: response_format, tools and choice, good and bad."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trimodal.errors import InvalidArgument
from trimodal.llm.settings import LlmSettings
from trimodal.llm.structured.constraint import read_form
from trimodal.llm.structured.json_schema.rules import SchemaRules
from trimodal.llm.structured.tools import Tools, read_tools

CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}
DICE = {"type": "function", "function": {"name": "dice", "description": "Throws dice."}}
NUMBERS = [{"type": "number", "minimum": -123456.7 - number, "maximum": 7654321} for number in range(99)]
BIG = {"type": "object", "properties": {f"p{number}": one for number, one in enumerate(NUMBERS)}}
DEEP = '{"type": "json_schema", "json_schema": {"schema": ' + '{"items":' * 99 + "{}" + "}" * 101
SCHEMA = '{"type": "json_schema", "json_schema": '
OTHER = '{"type": "function", "function": {"name": "other"}}'


def constraint(response_format: str | None, tools: Tools | None) -> str:
    return read_form(response_format, tools, LlmSettings().max_grammar_bytes).grammar


def form(**schema: Any) -> str:
    return json.dumps({"type": "json_schema", "json_schema": {"schema": schema, "strict": True}})


def tools(*functions: Any, choice: str | None = None, parallel: bool | None = None) -> Tools | None:
    return read_tools(json.dumps(functions), choice, parallel)


def test_text_is_free() -> None:
    assert constraint(None, None) == constraint('{"type": "text"}', None) == ""
    assert constraint(None, tools(CLOCK, choice="none")) == ""


@pytest.mark.parametrize("calls", ["hermes", "mistral"])
@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_a_format_of_type_text_beside_functions_is_none(calls: str, choice: str) -> None:
    """Thoughts were told as words of the answer, and a model's own way of calling was not let through."""
    functions = tools(CLOCK, choice=choice)
    plain, text = (read_form(given, functions, 8192, calls) for given in (None, '{"type": "text"}'))
    assert (text.free, text.grammar) == (plain.free, plain.grammar)
    assert plain.free == (choice != "required")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "response_format is not valid JSON"),
        ("[" * 5000, "response_format is nested too deeply"),
        (
            DEEP,
            "nested too deeply",
        ),
        ("NaN", "response_format holds NaN"),
        ('{"a": 1e999}', "response_format holds a number that is too large"),
        ('{"a": ' + "9" * 5000 + "}", "more digits than can be read"),
        ("[]", r"response_format is \[\]: an object"),
        ("{}", "response_format: type is None"),
        ('{"type": 3}', "response_format: type is 3"),
        ('{"type": "xml"}', "type is 'xml': one of text, json_object, json_schema"),
        ('{"type": "text", "schema": {}}', "unknown key 'schema'"),
        ('{"type": "json_object", "json_schema": {}}', "unknown key 'json_schema'"),
        ('{"type": "json_schema"}', 'json_schema must be an object with a "schema"'),
        (
            SCHEMA + '{"schema": true}}',
            'json_schema must be an object with a "schema"',
        ),
        (
            SCHEMA + '{"schema": {}, "strict": "yes"}}',
            "json_schema.strict is 'yes': true or false",
        ),
        (
            '{"type": "json_schema", "json_schema": {"schema": {}, "x": 1}}',
            "json_schema has an unknown key 'x'",
        ),
        (form(**BIG), "response_format is too complex: its grammar has"),
        (form(type="integer", enum=[1, 2], multipleOf=0), "multipleOf is not what JSON Schema has there"),
        (form(const="a", minLength="b"), "minLength is not what JSON Schema has there"),
        (form(const=[1], items={"type": "text"}), "items.type is not what JSON Schema has there"),
    ],
    ids=lambda value: value[:40],
)
def test_a_bad_response_format_is_refused_by_name(text: str, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        constraint(text, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "tools is not valid JSON"),
        ("{}", "tools must be a list of 1 to 64"),
        ('[{"type": "function", "function": {"name": "a", "strict": 1}}]', "strict is 1: true or false"),
        ("[]", "tools must be a list of 1 to 64"),
        ("[1]", r"tools\[0\] must be"),
        ('[{"type": "web_search"}]', r"tools\[0\] must be"),
        ('[{"type": "function", "function": 1}]', r"tools\[0\].function must be an object"),
        ('[{"type": "function", "function": {"name": "a b"}}]', r"tools\[0\].function.name is 'a b'"),
        ('[{"type": "function", "function": {"name": "a", "x": 1}}]', "unknown key 'x'"),
        ('[{"type": "function", "function": {"name": "a", "description": 1}}]', "description must be a text"),
        (
            '[{"type": "function", "function": {"name": "a", "parameters": 1}}]',
            "parameters must be a JSON Schema",
        ),
        (json.dumps([CLOCK, CLOCK]), "two functions 'clock'"),
    ],
)
def test_bad_tools_are_refused_by_name(text: str, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        read_tools(text, None, None)


def test_functions_that_are_not_offered_are_not_to_blame() -> None:
    with pytest.raises(InvalidArgument, match="^response_format is too complex: its grammar has"):
        constraint(form(**BIG), tools(CLOCK, choice="none"))


def test_parameters_that_cannot_be_kept_are_refused_by_name() -> None:
    def one(parameters: Any) -> Any:
        return {"type": "function", "function": {"name": "f", "parameters": parameters}}

    with pytest.raises(InvalidArgument, match=r"tools\[1\].function.parameters: type is 'array': 'object'"):
        constraint(None, tools(CLOCK, one({"type": "array"})))
    bad = {"type": "object", "properties": {"a": {"pattern": "(?=x)"}}}
    refusal = r"tools\[0\].function.parameters: properties.a.pattern has a look-around"
    for choice in ("required", '{"type": "function", "function": {"name": "f"}}'):
        with pytest.raises(InvalidArgument, match=refusal):
            constraint(None, tools(one(bad), choice=choice))
    strict = one(bad)
    strict["function"]["strict"] = True
    with pytest.raises(InvalidArgument, match=refusal):
        constraint(None, tools(strict))
    unheld = read_form(None, tools(CLOCK, one(bad)), 8192).unheld
    assert unheld == ("tools[1].function.parameters.properties.a.pattern",)


@pytest.mark.parametrize(
    ("schema", "unheld"),
    [
        ({"type": "string", "format": ["date"]}, "format"),
        ({"type": "string", "format": {}}, "format"),
        ({"enum": ["a", "b"], "minLength": "b"}, "minLength"),
    ],
)
def test_a_keyword_of_the_wrong_kind_is_passed_over_by_name_where_nothing_is_strict(
    schema: dict[str, Any], unheld: str
) -> None:
    asked = {"type": "json_schema", "json_schema": {"schema": schema}}
    assert read_form(json.dumps(asked), None, 8192).unheld == (f"response_format.{unheld}",)


@pytest.mark.parametrize(
    "choice",
    ["any", "{", OTHER, '{"type": "function"}', "[]"],
)
def test_a_choice_that_is_none_of_the_tools_is_refused(choice: str) -> None:
    with pytest.raises(InvalidArgument, match="tool_choice"):
        tools(CLOCK, choice=choice)


def test_a_choice_without_tools_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="tool_choice is given without tools"):
        read_tools(None, "required", None)
    with pytest.raises(InvalidArgument, match="parallel_tool_calls is given without tools"):
        read_tools(None, None, True)
    assert read_tools(None, "none", None) is None


def test_what_may_be_called() -> None:
    named = json.dumps({"type": "function", "function": {"name": "dice"}})
    only = constraint(None, tools(CLOCK, DICE, choice=named))
    assert "dice" in only
    assert "clock" not in only
    several = constraint(None, tools(CLOCK, DICE, choice="required"))
    assert "{0,7}" in several.splitlines()[0]
    one = constraint(None, tools(CLOCK, DICE, choice="required", parallel=False))
    assert "{0,7}" not in one.splitlines()[0]
    assert constraint('{"type": "json_object"}', tools(CLOCK)).startswith("root ::= object | ")


def test_tools_are_read_no_further_than_their_grammar_may_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    root = SchemaRules.root
    monkeypatch.setattr(SchemaRules, "root", lambda rules: read.append(rules) or root(rules))  # type: ignore[func-returns-value]
    called = [{"name": f"f{index}", "parameters": BIG} for index in range(40)]
    many = tools(*({"type": "function", "function": one} for one in called))
    read_whole = read_form(None, many, 20_000)
    assert len(read_whole.unheld) == 40
    assert len(read) == 1
