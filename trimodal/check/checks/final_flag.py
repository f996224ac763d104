"""Finds requests of a decoupled model that certainly end without the FINAL flag.

Two things are certain of a sender that a function holds: a way out before anything names it, and that all
it sends has no flags. What depends on conditions, exceptions or other code is not judged.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def find_open_requests(model: ast.ClassDef) -> Iterator[tuple[ast.AST, str]]:
    """Places where a request ends with nobody having sent FINAL, each with a sentence."""
    for function in ast.walk(model):
        if isinstance(function, _FUNCTIONS):
            assigned = [node for node in ast.walk(function) if _is_sender(node)]
            if len(assigned) == 1 and isinstance(assigned[0].targets[0], ast.Name):
                sender = assigned[0].targets[0].id
                yield from _exits_before_use(function, sender, assigned[0])
                if _never_final(function, sender):
                    yield assigned[0], f"nothing is sent with the FINAL flag over {sender}"


def _is_sender(node: ast.AST) -> TypeGuard[ast.Assign]:
    """`name = request.get_response_sender()`."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr == "get_response_sender"
    )


def _exits_before_use(function: ast.AST, sender: str, assigned: ast.Assign) -> Iterator[tuple[ast.AST, str]]:
    for block in ast.walk(function):
        if isinstance(block, (*_FUNCTIONS, *_LOOPS)) and assigned in block.body:
            for statement in block.body[block.body.index(assigned) + 1 :]:
                if _names(statement, sender):
                    return
                for node in _exits(statement):
                    word = "return" if isinstance(node, ast.Return) else "continue"
                    yield node, f"{word} with nothing sent over {sender}"


def _exits(node: ast.AST, *, in_loop: bool = False) -> Iterator[ast.AST]:
    """Where the statement leaves the function, or the loop's body that it stands in."""
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        return
    if isinstance(node, ast.Return) or (isinstance(node, ast.Continue) and not in_loop):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _exits(child, in_loop=in_loop or isinstance(node, _LOOPS))


def _never_final(function: ast.AST, sender: str) -> bool:
    """Whether the sender sends, never with flags, and goes nowhere else."""
    calls = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("send", "is_cancelled")
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == sender
    ]
    goes_elsewhere = _names(function, sender) > len(calls) + 1  # 1: where it is set
    return bool(calls) and not goes_elsewhere and not any(map(_has_flags, calls))


def _names(node: ast.AST, sender: str) -> int:
    """How often the sender is named."""
    return sum(isinstance(one, ast.Name) and one.id == sender for one in ast.walk(node))


def _has_flags(call: ast.Call) -> bool:
    given = [*call.args[1:], *(word.value for word in call.keywords if word.arg in ("flags", None))]
    return any(not (isinstance(one, ast.Constant) and one.value == 0) for one in given)
