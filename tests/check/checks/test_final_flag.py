"""Paths on which a request of a decoupled model ends without the FINAL flag."""

from __future__ import annotations

import ast
import textwrap

import pytest

from trimodal.check.checks.final_flag import find_open_paths

FRAME = """
import triton_python_backend_utils as pb_utils
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
{body}
"""


def paths(body: str) -> list[str]:
    text = FRAME.format(body=textwrap.indent(textwrap.dedent(body).strip(), " " * 12))
    tree = ast.parse(text)
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef))
    found = find_open_paths(tree, model)
    return [text.splitlines()[node.lineno - 1].strip() for node, _ in found]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("body", "at"),
    [
        (
            """
            if not self.ready:
                continue
            sender.send(self.answer(request), flags=FINAL)
            """,
            "continue",
        ),
        (
            """
            try:
                sender.send(self.answer(request), flags=FINAL)
            except Exception as error:
                sender.send(pb_utils.InferenceResponse(error=error))
            """,
            "sender = request.get_response_sender()",
        ),
        (
            """
            try:
                answer = self.answer(request)
            except ValueError:
                self.log("no answer")
                return
            sender.send(answer, flags=FINAL)
            """,
            "return",
        ),
        (
            """
            for answer in self.answers(request):
                if request.is_cancelled():
                    return
                sender.send(answer)
            sender.send(flags=FINAL)
            """,
            "return",
        ),
        (
            """
            answer = self.answer(request)
            if answer is not None:
                sender.send(answer, flags=FINAL)
            """,
            "sender = request.get_response_sender()",
        ),
        (
            """
            with self.lock:
                sender.send(self.answer(request), flags=0)
            if self.final_wanted:
                sender.send(flags=FINAL)
            """,
            "sender = request.get_response_sender()",
        ),
    ],
)
def test_a_path_without_an_end_is_found(body: str, at: str) -> None:
    assert paths(body) == [at]


@pytest.mark.parametrize(
    "body",
    [
        "self.queue.put((request, sender))",
        "self.sender = sender",
        "sender.send(self.answer(request), self.flags(request))",
        """
        try:
            sender.send(self.answer(request), flags=FINAL)
        except Exception as error:
            sender.send(pb_utils.InferenceResponse(error=error), flags=FINAL)
        """,
        """
        try:
            sender.send(flags=FINAL)
        except Exception:
            self.log("the client has left")
        """,
        """
        while True:
            answer, last = self.next(request)
            if last:
                sender.send(answer, flags=FINAL)
                break
            sender.send(answer)
        """,
        """
        try:
            if request.is_cancelled():
                return
            sender.send(self.answer(request))
        finally:
            sender.send(flags=FINAL)
        """,
        """
        with Finishing(sender):
            sender.send(self.answer(request))
        """,
        """
        match self.kind(request):
            case "one":
                sender.send(self.answer(request), flags=FINAL)
            case _:
                sender.send(flags=FINAL)
        """,
        """
        if self.simple:
            sender.send(self.answer(request), flags=FINAL)
            continue
        for answer in self.answers(request):
            if request.is_cancelled():
                break
            sender.send(answer)
        sender.send(flags=FINAL)
        """,
    ],
)
def test_an_end_on_every_path_or_out_of_sight_is_no_finding(body: str) -> None:
    assert paths(body) == []


@pytest.mark.parametrize(
    ("call", "blamed"),
    [("stream(sender)", False), ("self.engine.submit(sender)", False), ("self.stream(sender)", True)],
)
def test_a_module_without_the_flag_is_blamed_unless_it_hands_the_sender_out(call: str, blamed: bool) -> None:
    text = f"""
from elsewhere import stream


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            {call}

    def stream(self, one):
        one.send(self.answer())
"""
    tree = ast.parse(text)
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef))
    assert bool(find_open_paths(tree, model)) is blamed
