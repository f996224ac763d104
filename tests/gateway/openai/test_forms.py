"""What the model refuses for its size is not read for what no answer is held to."""

from __future__ import annotations

import asyncio

import pytest

from trimodal.gateway.openai import forms
from trimodal.llm.structured.reading import MAX_BYTES


def test_too_many_bytes_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise AssertionError("it was read")

    monkeypatch.setattr(forms, "read_tools", read)
    big = "x" * MAX_BYTES
    tool = {"type": "function", "function": {"name": "f", "description": big}}
    schema = {"type": "json_schema", "json_schema": {"name": "s", "description": big, "schema": {}}}
    assert asyncio.run(forms.unheld({"tools": [tool]})) == ()
    assert asyncio.run(forms.unheld({"response_format": schema})) == ()
