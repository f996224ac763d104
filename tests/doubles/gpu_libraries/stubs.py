"""Reads a folder of type stubs: the names of its modules, what an annotation says, how a call is bound."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
Key = tuple[str, str]
"""A class: the module that defines it, and its qualified name there."""


@dataclass(frozen=True)
class Name:
    """What a name in a module stands for: `kind` is class, function, variable, module or external."""

    kind: str
    module: str = ""
    qualname: str = ""
    nodes: tuple[ast.AST, ...] = ()
    exported: bool = True


@dataclass(frozen=True)
class Form:
    """An annotation: `kind` is any, none, self, class, literal, union or the name of a built-in type."""

    kind: str
    parts: tuple[Form, ...] = ()
    key: Key = ("", "")
    values: tuple[object, ...] = ()


ANY = Form("any")
EXTERNAL = Name("external", exported=False)
BUILTINS = {
    "int": "int", "SupportsInt": "int", "float": "float", "SupportsFloat": "float", "bool": "bool",
    "str": "str", "bytes": "bytes", "Buffer": "buffer", "object": "any", "Any": "any", "slice": "slice",
    "list": "list", "List": "list", "Sequence": "list", "set": "set", "Set": "set",
    "Iterable": "iterable", "Iterator": "iterator", "Generator": "iterator",
    "tuple": "tuple", "Tuple": "tuple", "dict": "dict", "Dict": "dict", "Mapping": "dict",
    "Path": "path", "Self": "self",
}  # fmt: skip


class Stubs:
    """The modules under one folder, as `tensorrt` or `tensorrt_llm`, `tensorrt_llm.llmapi`, …"""

    def __init__(self, folder: Path) -> None:
        self.trees: dict[str, ast.Module] = {}
        self.packages: set[str] = set()
        for path in sorted(folder.rglob("*.pyi")):
            parts = path.relative_to(folder).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
                self.packages.add(".".join(parts))
            self.trees[".".join(parts)] = ast.parse(path.read_text(), str(path))
        root = next(iter(folder.iterdir()))
        header = (root / "__init__.pyi").read_text().partition("\n")[0]
        found = re.search(r"\d+(\.\d+)+", header)
        self.root = root.name
        self.version = found.group() if found else folder.name.rpartition("-")[2]
        self._names: dict[str, dict[str, Name]] = {}
        self._forms: dict[tuple[str, ast.AST], Form] = {}

    def names(self, module: str) -> dict[str, Name]:
        """All names that the module's text binds; those without `exported` are not attributes of it."""
        if module not in self._names:
            table = self._names[module] = {}
            for node in self.trees[module].body:
                for name, meaning in self._bindings(module, node):
                    earlier = table.get(name)
                    if meaning.kind == "function" and earlier and earlier.kind == "function":
                        meaning = Name("function", module, name, (*earlier.nodes, *meaning.nodes))
                    table[name] = meaning
        return self._names[module]

    def _bindings(self, module: str, node: ast.stmt) -> Iterator[tuple[str, Name]]:
        if isinstance(node, ast.ClassDef):
            yield node.name, Name("class", module, node.name, (node,))
        elif isinstance(node, Function):
            yield node.name, Name("function", module, node.name, (node,))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, Name("variable", module, node.target.id, (node,))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, Name("variable", module, node.targets[0].id, (node,))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                known = alias.name in self.trees and alias.asname
                yield alias.asname or alias.name, Name("module", alias.name) if known else EXTERNAL
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                # A stub exports an imported name only when it is renamed, be it to itself.
                yield alias.asname or alias.name, self._imported(module, node, alias)

    def _imported(self, module: str, node: ast.ImportFrom, alias: ast.alias) -> Name:
        source = node.module or ""
        if node.level:
            levels = node.level - (module in self.packages)
            parts = module.split(".")[: len(module.split(".")) - levels]
            source = ".".join([*parts, *([node.module] if node.module else [])])
        exported = bool(alias.asname) or alias.name in self._all(module)
        if f"{source}.{alias.name}" in self.trees:
            return Name("module", f"{source}.{alias.name}", exported=exported)
        if source not in self.trees:
            return EXTERNAL
        found = self.names(source)[alias.name]
        return Name(found.kind, found.module, found.qualname, found.nodes, exported)

    def _all(self, module: str) -> list[str]:
        for node in self.trees[module].body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                return list(ast.literal_eval(node.value))
        return []

    def find(self, module: str, dotted: str) -> Name:
        """What `A.B` means in this module; kind external when the stubs do not say."""
        first, *rest = dotted.split(".")
        name = self.names(module).get(first, EXTERNAL)
        for part in rest:
            if name.kind == "module":
                name = self.names(name.module).get(part, EXTERNAL)
                continue
            inner = [n for n in members(name.nodes[0]) if isinstance(n, ast.ClassDef) and n.name == part] \
                if name.kind == "class" else []  # fmt: skip
            if not inner:
                return EXTERNAL
            name = Name("class", name.module, f"{name.qualname}.{part}", (inner[0],))
        return name

    def form(self, module: str, annotation: ast.expr | None) -> Form:
        """What the annotation says; `any` where it says nothing that can be checked."""
        if annotation is None:
            return ANY
        key = (module, annotation)
        if key not in self._forms:
            self._forms[key] = self._form(module, annotation)
        return self._forms[key]

    def _form(self, module: str, node: ast.expr) -> Form:
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                return self.form(module, ast.parse(node.value, mode="eval").body)
            return Form("none") if node.value is None else ANY
        if isinstance(node, ast.BinOp):
            return Form("union", (self.form(module, node.left), self.form(module, node.right)))
        if isinstance(node, ast.Subscript):
            inside = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
            outside = ast.unparse(node.value).rpartition(".")[2]
            if outside == "Literal":
                return Form("literal", values=tuple(ast.literal_eval(part) for part in inside))
            parts = tuple(self.form(module, part) for part in inside)
            if outside == "Optional":
                return Form("union", (*parts, Form("none")))
            if outside == "Union":
                return Form("union", parts)
            if outside == "ClassVar":
                return parts[0]
            return Form(self.form(module, node.value).kind, parts)
        text = ast.unparse(node)
        name = self.find(module, text)
        if name.kind == "class":
            return Form("class", key=(name.module, name.qualname))
        alias = name.nodes[0] if name.kind == "variable" else None
        if isinstance(alias, ast.AnnAssign) and alias.value and "TypeAlias" in ast.unparse(alias.annotation):
            return self.form(name.module, alias.value)
        return Form(BUILTINS.get(text.rpartition(".")[2], "any"))


@lru_cache(maxsize=4)
def read(folder: Path) -> Stubs:
    """The stubs of the folder, parsed once a process."""
    return Stubs(folder)


def members(node: ast.AST) -> list[ast.stmt]:
    return node.body if isinstance(node, ast.ClassDef) else []


def decorators(node: Function) -> list[str]:
    return [ast.unparse(decorator).removeprefix("typing.") for decorator in node.decorator_list]


def parameters(node: Function, *, bound: bool) -> list[tuple[inspect.Parameter, ast.expr | None]]:
    """The function's parameters with their annotations; without the first one when `bound`."""
    kinds, a = inspect.Parameter, node.args
    positional = [*a.posonlyargs, *a.args]
    defaults = [None] * (len(positional) - len(a.defaults)) + list(a.defaults)
    rows: list[tuple[ast.arg, inspect._ParameterKind, ast.expr | None]] = []
    for arg, default in list(zip(positional, defaults, strict=True))[bound:]:
        # pybind11 calls a parameter arg0, arg1, … when it has no name: it takes no keyword then.
        nameless = arg in a.posonlyargs or re.fullmatch(r"arg\d+", arg.arg)
        rows.append((arg, kinds.POSITIONAL_ONLY if nameless else kinds.POSITIONAL_OR_KEYWORD, default))
    if a.vararg:
        rows.append((a.vararg, kinds.VAR_POSITIONAL, None))
    rows += [(arg, kinds.KEYWORD_ONLY, d) for arg, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)]
    if a.kwarg:
        rows.append((a.kwarg, kinds.VAR_KEYWORD, None))
    return [
        (
            kinds(arg.arg, kind, default=kinds.empty if default is None else ast.literal_eval(default)),
            arg.annotation,
        )
        for arg, kind, default in rows
    ]
