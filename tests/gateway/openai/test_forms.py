"""What no answer is held to is told, and what the model refuses for its size is not read for it."""

from __future__ import annotations

import asyncio

import pytest

from trimodal.gateway.openai import forms
from trimodal.llm.structured.reading import MAX_BYTES


def tool(description: str = "") -> dict[str, object]:
    parameters = {"type": "object", "properties": {"a": {"type": "string", "if": {}}}}
    return {
        "type": "function",
        "function": {"name": "f", "description": description, "parameters": parameters},
    }


def test_a_keyword_that_nothing_holds_has_its_place() -> None:
    told = asyncio.run(forms.unheld({"tools": [tool()]}))
    assert [place.rsplit(".", 1)[1] for place in told] == ["if"]


def test_too_many_bytes_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise AssertionError("it was read")

    monkeypatch.setattr(forms, "read_tools", read)
    big = "x" * MAX_BYTES
    schema = {"type": "json_schema", "json_schema": {"name": "s", "description": big, "schema": {}}}
    assert asyncio.run(forms.unheld({"tools": [tool(big)]})) == ()
    assert asyncio.run(forms.unheld({"response_format": schema})) == ()
