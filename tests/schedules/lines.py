"""Makes each statement of a module a point to switch at: races on what no lock guards show there.

The functions get code compiled from the same source with a call before every statement. `sys.settrace` would
cost more, and sees nothing of a greenlet that another one's trace function has switched to.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from functools import cache
from types import CodeType, FunctionType
from typing import Any

CALL = "__switch__"


@cache
def switching_code(name: str) -> list[tuple[FunctionType, CodeType]]:
    """The module's functions and methods, each with its code that calls `CALL` before every statement."""
    module = sys.modules[name]
    tree = _Inserter().visit(ast.parse(inspect.getsource(module)))
    compiled = _codes(compile(ast.fix_missing_locations(tree), str(module.__file__), "exec"))
    owners = [module, *(one for one in vars(module).values() if inspect.isclass(one))]
    found = []
    for owner in owners:
        for value in list(vars(owner).values()):
            function = _function_of(value)
            if function and function.__module__ == name and (code := compiled.get(_key(function.__code__))):
                found.append((function, code))
    return found


class _Inserter(ast.NodeTransformer):
    """Puts the call before the statements of functions; those of modules and classes run once."""

    def __init__(self) -> None:
        self._depth = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if self._depth and not isinstance(node, ast.ClassDef):
            for part in ("body", "orelse", "finalbody"):
                statements = getattr(node, part, None)
                if isinstance(statements, list):
                    setattr(node, part, [one for each in statements for one in (_call(each), each)])
        return node


def _call(before: ast.stmt) -> ast.stmt:
    call = ast.Expr(ast.Call(ast.Name(CALL, ast.Load()), [], []))
    return ast.copy_location(call, before)


def _codes(code: CodeType) -> dict[tuple[str, int], CodeType]:
    found = {_key(code): code}
    for one in code.co_consts:
        if isinstance(one, CodeType):
            found.update(_codes(one))
    return found


def _key(code: CodeType) -> tuple[str, int]:
    return code.co_name, code.co_firstlineno


def _function_of(value: Any) -> FunctionType | None:
    if isinstance(value, property):
        value = value.fget
    elif isinstance(value, functools.cached_property):
        value = value.func
    elif isinstance(value, staticmethod | classmethod):
        value = value.__func__
    value = inspect.unwrap(value) if callable(value) else value
    return value if isinstance(value, FunctionType) else None
