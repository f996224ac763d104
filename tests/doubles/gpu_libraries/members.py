"""The members of a double: attributes, methods and constructors as the stub declares them.

Each call is bound by the stub's signature, then handed to the recorder (`Perform`).
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tests.doubles.gpu_libraries.kinds import RESERVED, Buffer, Double, Sizes, attribute
from tests.doubles.gpu_libraries.stubs import Form, Function, Key, Stubs, decorators, members, parameters
from tests.doubles.gpu_libraries.values import Signatures, accepts, convert, default

RECORDED_SPECIALS = {"__enter__", "__exit__", "__call__"}


class Perform(Protocol):
    """Records a call and gives its result, from a script or from `produce`; both go through `finish`."""

    def __call__(
        self,
        names: Sequence[str],
        instance: object,
        arguments: dict[str, Any],
        produce: Callable[[], Any],
        finish: Callable[[Any], Any] = ...,
        *,
        record: bool = ...,
    ) -> Any: ...


class Classes(Protocol):
    stubs: Stubs
    perform: Perform

    def of(self, key: Key) -> Any: ...
    def blank(self, key: Key) -> Any: ...
    def from_plain(self, key: Key, value: object) -> Any: ...
    def labels(self, key: Key) -> list[str]: ...


class Attribute:
    """An annotated attribute or a property: what was set, else the stub's default, else by annotation."""

    def __init__(
        self,
        classes: Classes,
        key: Key,
        name: str,
        form: Form,
        *,
        value: ast.expr | None,
        setter: Form | None,
    ) -> None:
        self._classes, self._key, self._name, self._form, self._setter = classes, key, name, form, setter
        self._value = ... if value is None else ast.literal_eval(value)

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            raise AttributeError(f"{owner.__qualname__} has {self._name!r} on its instances only")
        names = labels(self._classes, self._key, self._name, instance)
        return self._classes.perform(
            names, instance, {}, lambda: self._held(instance), self._as_stated, record=False
        )

    def __set__(self, instance: Any, value: Any) -> None:
        if self._setter is None:
            raise AttributeError(f"property {self._name!r} of {type(instance).__qualname__!r} has no setter")
        if not accepts(self._classes, self._setter, value):
            raise TypeError(
                f"{type(instance).__qualname__}.{self._name} = {value!r}: not of the declared type"
            )
        vars(instance)[self._name] = self._as_stated(value)

    def fill(self, instance: Any, value: Any) -> None:
        """Sets it as the library would, a read-only property too. Raises: TypeError on another type."""
        if value is not None and not accepts(self._classes, self._form, self._as_stated(value)):
            raise TypeError(
                f"{type(instance).__qualname__}.{self._name} = {value!r}: not of the declared type"
            )
        vars(instance)[self._name] = self._as_stated(value)

    def _held(self, instance: Any) -> Any:
        if self._name not in vars(instance):
            value = self._value
            if value is ...:
                value = _constructor_default(type(instance), self._name)
            vars(instance)[self._name] = (
                default(self._classes, self._form, instance) if value is ... else value
            )
        return vars(instance)[self._name]

    def _as_stated(self, value: Any) -> Any:
        return convert(self._classes, self._form, value)


def new(cls: Any, content: bytes = b"", **attributes: Any) -> Any:
    """An object that no constructor made, as the library hands them out; the attributes must be declared."""
    made = cls.__mro__[-2].__new__(cls, content) if issubclass(cls, Buffer) else object.__new__(cls)
    vars(made)["_constructed"] = True
    if issubclass(cls, Buffer):
        vars(made)["nbytes"] = len(content)
    for name, value in attributes.items():
        found = attribute(cls, name)
        if not isinstance(found, Attribute):
            raise AttributeError(f"{cls.__qualname__!r} object has no attribute {name!r}")
        found.fill(made, value)
    return made


def method(classes: Classes, key: Key, name: str, nodes: Sequence[Function]) -> Any:
    """A method of the class, or a function of the module when the key names no class."""
    marks = decorators(nodes[-1])
    special = name.startswith("__")
    static = not key[1] or ("staticmethod" in marks and not special)
    signatures: list[Signatures] = []

    def call(instance: Any, args: Sequence[Any], keywords: dict[str, Any]) -> Any:
        names = labels(classes, key, name, instance)
        if not signatures:
            signatures.append(Signatures(classes, key[0], names[0], nodes, method=not static))
        given, _, form = signatures[0].bind(args, keywords)
        return classes.perform(
            names,
            instance,
            given,
            lambda: _result(classes, name, instance, given, form),
            lambda value: convert(classes, form, value),
            record=not special or name in RECORDED_SPECIALS,
        )

    def plain(self: Any, *args: Any, **keywords: Any) -> Any:
        if not special and is_pure_virtual(key, self):
            raise RuntimeError(f'Tried to call pure virtual function "{key[1]}::{name}"')
        return call(self, args, keywords)

    def free(*args: Any, **keywords: Any) -> Any:
        return call(None, args, keywords)

    async def asynchronous(self: Any, *args: Any, **keywords: Any) -> Any:
        value = call(self, args, keywords)
        return await value if inspect.isawaitable(value) and value is not self else value

    def awaited(self: Any) -> Any:
        return asynchronous(self).__await__()

    if isinstance(nodes[0], ast.AsyncFunctionDef):
        return asynchronous
    if name == "__await__":
        return awaited
    if static:
        return staticmethod(free)
    return classmethod(plain) if "classmethod" in marks else plain


def constructor(classes: Classes, key: Key, nodes: Sequence[Function]) -> Any:
    """`__init__`: keeps the arguments, and the stub's defaults, that are attributes of the class too."""
    signatures = Signatures(classes, key[0], classes.labels(key)[0], nodes, method=True)

    def __init__(self: Any, *args: Any, **keywords: Any) -> None:
        given, filled, _ = signatures.bind(args, keywords)
        names = classes.labels(key)
        if type(self).__mro__ and RESERVED in vars(type(self)):
            names = classes.labels(vars(type(self))[RESERVED])
        vars(self)["_constructed"] = True
        for name, value in filled.items():
            if value is not ... and isinstance(attribute(type(self), name), Attribute):
                vars(self)[name] = value
        if isinstance(self, Sizes):
            self._fill(given)
        classes.perform(names, self, given, lambda: self, lambda _: self, record=not isinstance(self, Sizes))

    return __init__


def is_pure_virtual(key: Key, instance: Any) -> bool:
    """Whether pybind11 would find no override: an interface's method that a Python subclass lacks."""
    mine = isinstance(instance, Double) and RESERVED in vars(type(instance))
    return isinstance(instance, Double) and instance._pybind and not mine and key[1].startswith("I")


def labels(classes: Classes, key: Key, name: str, instance: object) -> list[str]:
    """All names under which a call may be asked for: those of the object's class first, then of its bases."""
    if not key[1]:
        return [f"{key[0]}.{name}"]
    cls = instance if isinstance(instance, type) else type(instance)
    keys = [vars(base)[RESERVED] for base in cls.__mro__ if RESERVED in vars(base)]
    keys = keys[: keys.index(key) + 1] if key in keys else [key]
    return [f"{label}.{name}" for one in keys for label in classes.labels(one)]


def dataclass_init(fields: Sequence[ast.AnnAssign]) -> ast.FunctionDef:
    """The constructor that a dataclass of these fields gets."""
    args = [ast.arg("self")]
    args += [ast.arg(ast.unparse(field.target), field.annotation) for field in fields]
    arguments = ast.arguments([], args, None, [], [], None, [field.value for field in fields if field.value])
    return ast.FunctionDef("__init__", arguments, [], [], None)


def functions(node: ast.ClassDef) -> dict[str, list[Function]]:
    found: dict[str, list[Function]] = {}
    for statement in members(node):
        if isinstance(statement, Function):
            found.setdefault(statement.name, []).append(statement)
    return found


def constructor_defaults(nodes: Sequence[Function]) -> dict[str, Any]:
    rows = [row for node in nodes for row, _ in parameters(node, bound=True)]
    return {row.name: row.default for row in rows if row.default not in (row.empty, ...)}


def _constructor_default(cls: type[Double], name: str) -> Any:
    for base in cls.__mro__:
        if name in vars(base).get("_defaults", {}):
            return vars(base)["_defaults"][name]
    return ...


def _result(classes: Classes, name: str, instance: Any, given: dict[str, Any], form: Form) -> Any:
    if name in ("__enter__", "__await__"):
        return instance
    if name == "__anext__":
        raise StopAsyncIteration
    if name == "__next__":
        raise StopIteration
    if name == "__getitem__" and next(iter(given.values())) not in range(len(instance)):
        raise IndexError(f"{type(instance).__qualname__} is empty here")
    if form.kind == "self" and isinstance(instance, type):
        return new(instance)
    return default(classes, form, instance)
