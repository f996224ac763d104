"""Makes the classes of a folder of stubs: what the stub declares they have, and nothing else."""

from __future__ import annotations

import ast
import enum
from collections import namedtuple
from typing import Any

from tests.doubles.gpu_libraries.kinds import (
    COMPARISONS,
    RESERVED,
    Buffer,
    Double,
    EnumMember,
    Maker,
    Sizes,
    TypedDictMaker,
)
from tests.doubles.gpu_libraries.members import (
    Attribute,
    Perform,
    constructor,
    constructor_defaults,
    dataclass_init,
    functions,
    method,
    new,
)
from tests.doubles.gpu_libraries.stubs import Form, Key, Stubs, decorators
from tests.doubles.gpu_libraries.values import default

# Python's own, and what the base classes of the doubles do.
LEFT_TO_PYTHON = {
    "__init__", "__del__", "__repr__", "__str__", "__hash__", "__eq__", "__ne__", "__nonzero__",
    "__getstate__", "__setstate__", "__getattr__", "__int__", "__index__",
}  # fmt: skip
BASES: dict[str, type[Double]] = {"IHostMemory": Buffer, "Dims": Sizes, "Permutation": Sizes}


class Factory:
    """The classes of the stubs, each made when it is first asked for."""

    def __init__(self, stubs: Stubs, perform: Perform, *, pybind: bool) -> None:
        self.stubs, self.perform, self._pybind = stubs, perform, pybind
        self._made: dict[Key, Any] = {}
        self._public: dict[Key, list[str]] = {}
        for module in stubs.trees:
            for name, meaning in stubs.names(module).items():
                if meaning.kind == "class" and meaning.exported:
                    key = (meaning.module, meaning.qualname)
                    self._public.setdefault(key, []).append(f"{module}.{name}")
        for names in self._public.values():
            names.sort(key=lambda name: (name.count("."), len(name), name))

    def of(self, key: Key) -> Any:
        """The class. Raises: KeyError when the stubs define none."""
        if key not in self._made:
            found = self.stubs.find(*key)
            if found.kind != "class":
                raise KeyError(key)
            self._made[key] = self._make(key, found.nodes[0])
        return self._made[key]

    def blank(self, key: Key) -> Any:
        """A value of the class that no constructor made; an enum's first member."""
        cls = self.of(key)
        if issubclass(cls, EnumMember):
            return next(iter(cls._members.values()))
        if issubclass(cls, enum.Enum):
            return next(iter(cls))
        return new(cls) if issubclass(cls, Double) else None

    def from_plain(self, key: Key, value: object) -> Any:
        """Bytes as host memory, a sequence of numbers as Dims; None when the class is neither."""
        cls = self.of(key)
        if issubclass(cls, Buffer) and isinstance(value, (bytes, bytearray)):
            return new(cls, bytes(value))
        if issubclass(cls, Sizes) and isinstance(value, (tuple, list)):
            made = new(cls)
            made._fill({"shape": value})
            return made
        return None

    def labels(self, key: Key) -> list[str]:
        """All names of the class, the shortest public one first."""
        return list(dict.fromkeys([*self._public.get(key, []), ".".join(key)]))

    def _make(self, key: Key, node: ast.AST) -> Any:
        assert isinstance(node, ast.ClassDef)
        forms = [self.stubs.form(key[0], base) for base in node.bases]
        bases = tuple(self.of(form.key) for form in forms if form.kind == "class")
        texts = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        public, _, last = self.labels(key)[0].rpartition(".")
        space: dict[str, Any] = {"__module__": public if last == key[1] else key[0], "__qualname__": key[1]}
        fields = [n for n in node.body if isinstance(n, ast.AnnAssign)]
        if texts & {"Enum", "IntFlag"}:
            return self._python_enum(key, node, space, texts)
        if "NamedTuple" in texts:
            values = [ast.literal_eval(field.value) for field in fields if field.value]
            return namedtuple(node.name, [_name(field) for field in fields], defaults=values)  # noqa: PYI024
        if "TypedDict" in texts:
            optional = frozenset(_name(f) for f in fields if "NotRequired" in ast.unparse(f.annotation))
            required = frozenset(_name(f) for f in fields) - optional
            return TypedDictMaker(node.name, (), {**space, "_required": required, "_optional": optional})
        if "RuntimeError" in texts:
            return type(node.name, (RuntimeError,), space)
        return self._plain(key, node, space, bases)

    def _python_enum(self, key: Key, node: ast.ClassDef, space: dict[str, Any], texts: set[str]) -> Any:
        bases: tuple[type, ...] = (enum.IntFlag,) if "IntFlag" in texts else (enum.Enum,)
        bases = (str, *bases) if "str" in texts else bases
        body: Any = enum.EnumMeta.__prepare__(node.name, bases)
        body.update(space)
        for statement in node.body:
            if isinstance(statement, ast.Assign):
                value = ast.literal_eval(statement.value)
                body[ast.unparse(statement.targets[0])] = enum.auto() if value is ... else value
        for name, nodes in functions(node).items():
            body[name] = method(self, key, name, nodes)
        return enum.EnumMeta(node.name, bases, body)

    def _plain(self, key: Key, node: ast.ClassDef, space: dict[str, Any], bases: tuple[type, ...]) -> Any:
        module, methods = key[0], functions(node)
        for name in ("__int__", "__init__"):  # a class whose methods take another one's self is that one
            for function in methods.get(name, []):
                itself = self.stubs.form(module, function.args.args[0].annotation)
                if itself.kind == "class" and itself.key != key:
                    return self.of(itself.key)
        fields = [n for n in node.body if isinstance(n, ast.AnnAssign)]
        forms = {_name(field): self.stubs.form(module, field.annotation) for field in fields}
        kind = EnumMember if "__members__" in forms else BASES.get(node.name, Double)
        space |= {RESERVED: key, "_pybind": self._pybind}
        for inner in node.body:
            if isinstance(inner, ast.ClassDef):
                space[inner.name] = self.of((module, f"{key[1]}.{inner.name}"))
        for name, nodes in methods.items():
            inherited = kind is not Double and any(name in vars(base) for base in kind.__mro__[:-1])
            if name in LEFT_TO_PYTHON or inherited:
                continue
            if "property" in decorators(nodes[0]):
                form = self.stubs.form(module, nodes[0].returns)
                written = nodes[1].args.args[-1].annotation if len(nodes) > 1 else None
                setter = self.stubs.form(module, written) if len(nodes) > 1 else None
                space[name] = Attribute(self, key, name, form, value=None, setter=setter)
            else:
                space[name] = COMPARISONS.get(name) or method(self, key, name, nodes)
        own = [field for field in fields if "ClassVar" not in ast.unparse(field.annotation)]
        for field in own:
            form = forms[_name(field)]
            space[_name(field)] = Attribute(self, key, _name(field), form, value=field.value, setter=form)
        if "dataclass" in [ast.unparse(decorator) for decorator in node.decorator_list]:
            methods["__init__"] = [dataclass_init(own)]
        if "__init__" in methods and kind is not EnumMember:
            space["__init__"] = constructor(self, key, methods["__init__"])
            space["_defaults"] = constructor_defaults(methods["__init__"])
        cls: Any = Maker(node.name, bases or (kind,), space)
        if kind is EnumMember:
            _enumerate(cls, [name for name, form in forms.items() if form == Form("class", key=key)])
            return cls
        for field in fields:
            if field not in own:
                setattr(cls, _name(field), self._class_value(cls, _name(field), forms[_name(field)], field))
        return cls

    def _class_value(self, cls: Any, name: str, form: Form, field: ast.AnnAssign) -> Any:
        if field.value is not None:
            return ast.literal_eval(field.value)
        if form.kind == "class" and issubclass(self.of(form.key), EnumMember):
            return self.of(form.key)._members[name]
        return default(self, form)


def _name(field: ast.AnnAssign) -> str:
    return ast.unparse(field.target)


def _enumerate(cls: Any, names: list[str]) -> None:
    cls._members = cls.__members__ = {name: new(cls) for name in names}
    for place, (name, member) in enumerate(cls._members.items()):
        vars(member).update(_name=name, _value=place)
        setattr(cls, name, member)
