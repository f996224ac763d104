"""Follows a response sender through a decoupled model: can a request end without the FINAL flag?

It speaks only of what it can see whole. A sender that is handed to other code, kept in an attribute or
sent with flags that are computed counts as ended, so that no correct model is blamed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_FINAL = "TRITONSERVER_RESPONSE_COMPLETE_FINAL"
_Found = tuple[ast.AST, str]
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def find_open_paths(tree: ast.Module, model: ast.ClassDef) -> list[_Found]:
    """Places where a request may end with nobody having sent FINAL, each with a sentence."""
    found: list[_Found] = []
    for function in ast.walk(model):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for body in _scopes(function):
                found += _scope(body)
    return found or _never_final(tree)


def _never_final(tree: ast.Module) -> list[_Found]:
    """A module that takes senders and sends, hands nothing to imported code, and knows no FINAL flag."""
    asked = [node for node in ast.walk(tree) if _is_sender(node)]
    sends = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _attribute(node) == "send"]
    mentions = any(
        (isinstance(node, ast.Attribute) and "FINAL" in node.attr)
        or (isinstance(node, ast.Name) and "FINAL" in node.id)
        or (isinstance(node, ast.keyword) and node.arg == "flags")
        for node in ast.walk(tree)
    )
    positional = any(len(node.args) > 1 for node in sends)
    if asked and sends and not mentions and not positional and not _handed_out(tree):
        return [(asked[0], "responses are sent, but never with the FINAL flag")]
    return []


def _handed_out(tree: ast.Module) -> bool:
    """Whether a sender is an argument of something that is not written in this module."""
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and _is_sender(node.value)]
    names = {target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)}
    defined = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            given = [*call.args, *(word.value for word in call.keywords)]
            if any(_is_sender(one) or (isinstance(one, ast.Name) and one.id in names) for one in given):
                function = call.func
                own = isinstance(function, ast.Name) and function.id in defined
                if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
                    own = function.value.id == "self"
                if not own:
                    return True
    return False


def _attribute(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def _is_sender(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _attribute(node) == "get_response_sender"


def _scopes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Sequence[ast.stmt]]:
    """Bodies in which a sender is set to a name: the function's, or that of a loop over its requests."""
    yield function.body
    for node in ast.walk(function):
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            yield node.body


def _scope(body: Sequence[ast.stmt]) -> list[_Found]:
    for index, statement in enumerate(body):
        if isinstance(statement, ast.Assign) and _is_sender(statement.value):
            target = statement.targets[0]
            if len(statement.targets) == 1 and isinstance(target, ast.Name):
                walk = _Walk(target.id)
                left = walk.block(body[index + 1 :], open_=True)
                if left and walk.sends:  # one that never sends here hands over in a way that is not seen
                    walk.found.append((statement, f"a path sends nothing final over {target.id}"))
                return walk.found if walk.sends else []
    return []


@dataclass
class _Walk:
    """Walks statements; `open_` says whether the sender may still be open there."""

    sender: str
    sends: int = 0
    found: list[_Found] = field(default_factory=list)
    exits: list[bool] = field(default_factory=list)  # what inner breaks leave
    depth: int = 0  # of loops inside the scope

    def block(self, statements: Sequence[ast.stmt], open_: bool) -> bool:
        """Whether the sender may be open behind the statements; False also where nothing gets there."""
        conditional = [
            one
            for one in statements
            if isinstance(one, ast.If) and self.may_end(one) and not isinstance(one.body[-1], _LEAVES)
        ]
        for statement in statements:
            open_ = self.statement(statement, open_)
            if isinstance(statement, _LEAVES):
                return False
            if len(conditional) > 1 and statement is conditional[-1]:
                open_ = False  # `if failed: …` and later `if not failed: …` end it together
        return open_

    def statement(self, node: ast.stmt, open_: bool) -> bool:
        if isinstance(node, ast.If):
            open_ = open_ and not self.ends(node.test)
            ways = [self.block(node.body, open_), self.block(node.orelse, open_)]
            return any(ways)
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            return self.loop(node, open_)
        if isinstance(node, (ast.With, ast.AsyncWith)):
            open_ = open_ and not any(self.ends(item.context_expr) for item in node.items)
            return self.block(node.body, open_)
        if isinstance(node, ast.Try):
            return self.attempt(node, open_)
        if isinstance(node, ast.Match):
            whole = any(
                isinstance(case.pattern, ast.MatchAs) and not case.pattern.pattern for case in node.cases
            )
            return any([self.block(case.body, open_) for case in node.cases]) or (open_ and not whole)
        if open_ and self.ends(node):
            open_ = False
        if open_ and self.sends_here(node):
            return open_
        if (
            open_
            and isinstance(node, (ast.Return, ast.Continue))
            and not (self.depth and isinstance(node, ast.Continue))
        ):
            word = "return" if isinstance(node, ast.Return) else "continue"
            self.found.append((node, f"{word} with nothing final sent over {self.sender}"))
        if open_ and isinstance(node, ast.Break) and self.exits and self.depth:
            self.exits[-1] = True
        return open_

    def loop(self, node: ast.For | ast.AsyncFor | ast.While, open_: bool) -> bool:
        ends_inside = any(self.may_end(one) for one in node.body)
        self.depth += 1
        self.exits.append(False)
        self.block(node.body, open_)
        broken = self.exits.pop()
        self.depth -= 1
        if ends_inside:
            return False  # whoever sends the last one inside a loop goes by what it has seen
        endless = (
            isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and bool(node.test.value)
        )
        return self.block(node.orelse, broken if endless else open_)

    def attempt(self, node: ast.Try, open_: bool) -> bool:
        if any(self.may_end(one) for one in node.finalbody):
            self.sends += 1
            return False  # whatever happens before, a return included
        sends_before = self.sends
        inside = self.block(node.body, open_)
        inside = self.block(node.orelse, inside)
        # An exception may come first. If all that is tried is to send, nothing can be sent any more.
        calls = [child for one in node.body for child in ast.walk(one) if isinstance(child, ast.Call)]
        trivial = bool(calls) and all(self.is_send(call) for call in calls)
        start = open_ and not trivial and (self.sends > sends_before or inside)
        ways = [inside, *(self.block(handler.body, start) for handler in node.handlers)]
        return self.block(node.finalbody, any(ways)) if node.finalbody else any(ways)

    def may_end(self, node: ast.stmt) -> bool:
        """Whether some statement in it ends the request, in whichever branch."""
        if isinstance(
            node, (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)
        ):
            return any(
                self.may_end(child)
                for child in ast.walk(node)
                if isinstance(child, ast.stmt) and child is not node
            )
        before = self.sends
        ends = self.ends(node)
        self.sends = before
        return ends

    def sends_here(self, node: ast.AST) -> bool:
        calls = [child for child in ast.walk(node) if isinstance(child, ast.Call) and self.is_send(child)]
        self.sends += len(calls)
        return bool(calls)

    def is_send(self, call: ast.Call) -> bool:
        function = call.func
        return (
            isinstance(function, ast.Attribute)
            and function.attr == "send"
            and isinstance(function.value, ast.Name)
            and function.value.id == self.sender
        )

    def ends(self, node: ast.AST) -> bool:
        """Whether this sends FINAL, or may: computed flags, or a sender that goes elsewhere."""
        plain: set[int] = set()
        for child in ast.walk(node):
            if isinstance(child, ast.Attribute) and child.attr in ("send", "is_cancelled"):
                plain.add(id(child.value))
        for child in ast.walk(node):
            if isinstance(child, ast.Call) and self.is_send(child):
                flags = next((word.value for word in child.keywords if word.arg == "flags"), None)
                flags = flags if flags is not None or len(child.args) < 2 else child.args[1]
                if flags is not None and not (isinstance(flags, ast.Constant) and flags.value == 0):
                    self.sends += 1
                    return True
            elif isinstance(child, ast.Name) and child.id == self.sender and id(child) not in plain:
                self.sends += 1
                return True
        return False
