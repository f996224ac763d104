"""Makes one grammar of all that a request asks of its answer's form."""

from __future__ import annotations

from trimodal.errors import InvalidArgument
from trimodal.llm.structured.grammar import Grammar
from trimodal.llm.structured.response_format import response_root
from trimodal.llm.structured.tools import Tools, text_or_calls


def constraint(response_format: str | None, tools: Tools | None, most_bytes: int) -> str:
    """The grammar of an answer; "": any text.

    Raises:
        InvalidArgument: a field is malformed or cannot be kept, or the grammar has more than `most_bytes`.
    """
    grammar = Grammar()
    root = response_root(grammar, response_format) if response_format is not None else ""
    if tools and tools.choice != "none":
        calls = tools.calls(grammar)
        if tools.choice != "auto":
            root = calls
        else:
            root = f"{root} | {calls}" if root else text_or_calls(grammar, calls)
    text = grammar.text(root) if root else ""
    if len(text) > most_bytes:
        field = "tools" if tools else "response_format"
        raise InvalidArgument(
            f"{field} is too complex: its grammar has {len(text)} bytes, max_grammar_bytes is {most_bytes}"
        )
    return text
