"""Requests of a decoupled model that certainly end without the FINAL flag."""

from __future__ import annotations

import ast
import textwrap

import pytest

from trimodal.check.checks.final_flag import find_open_requests

FRAME = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
{body}
"""
GETS = "sender = request.get_response_sender()"
SENDS = "sender.send(self.answer(request), flags=FINAL)"


@pytest.mark.parametrize(
    ("body", "at"),
    [
        (f"if not self.ready:\n    continue\n{SENDS}", ["continue"]),
        (f"for one in self.all:\n    if one.bad:\n        return\n{SENDS}", ["return"]),
        (f"try:\n    answer = self.answer(request)\nexcept ValueError:\n    return\n{SENDS}", ["return"]),
        ("sender.send(self.answer(request))", [GETS]),
        ("sender.send(self.answer(request), 0)\nsender.send(flags=0)", [GETS]),
        ("if not sender.is_cancelled():\n    sender.send(self.answer(request))", [GETS]),
        # An end somewhere, or out of sight.
        (SENDS, []),
        (f"for answer in self.answers():\n    if not answer:\n        continue\n    self.log()\n{SENDS}", []),
        (f"def later():\n    return 1\n{SENDS}", []),
        (f"if sender.is_cancelled():\n    return\n{SENDS}", []),
        ("sender.send(self.answer(request), self.flags(request))", []),
        ("sender.send(self.answer(request), **self.more)", []),
        ("self.queue.put((request, sender))", []),
        ("self.sender = sender", []),
        ("sender.send(self.answer(request))\nself.end(sender)", []),
        ("with Finishing(sender):\n    sender.send(self.answer(request))", []),
        (f"try:\n    {SENDS}\nexcept Exception:\n    sender.send(self.error())", []),
        (f"if self.simple:\n    {SENDS}\n    continue\nself.send(sender)", []),
    ],
)
def test_what_is_certain_is_found(body: str, at: list[str]) -> None:
    text = FRAME.format(body=textwrap.indent(body, " " * 12))
    (model,) = ast.parse(text).body
    assert isinstance(model, ast.ClassDef)
    found = [node.lineno for node, _ in find_open_requests(model)]  # type: ignore[attr-defined]
    assert [text.splitlines()[line - 1].strip() for line in found] == at
