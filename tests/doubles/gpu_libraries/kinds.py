"""Base classes of the doubles: objects that refuse undeclared attributes; enums and sizes as pybind11's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RESERVED = "_double"
"""In the own namespace of each class made from a stub; a test's subclass of it has none."""


class Maker(type):
    """The class of the doubles: calling one refuses what pybind11 refuses."""

    _pybind: bool

    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        made = super().__call__(*args, **keywords)
        if cls._pybind and not vars(made).get("_constructed"):
            raise TypeError(f"{cls.__qualname__}.__init__() must be called when overriding __init__")
        return made


class Double(metaclass=Maker):
    """An object of a stub's class: only declared attributes can be set; a subclass may add its own."""

    _pybind = False
    _defaults: Mapping[str, Any] = {}

    def __init__(self, *args: Any, **keywords: Any) -> None:
        if self._pybind:
            raise TypeError(f"{type(self).__module__}.{type(self).__qualname__}: No constructor defined!")
        if args or keywords:
            raise TypeError(f"{type(self).__qualname__}() takes no arguments")

    def __setattr__(self, name: str, value: object) -> None:
        declared = any(name in vars(base) for base in type(self).__mro__ if RESERVED in vars(base))
        if RESERVED in vars(type(self)) and not declared:
            raise AttributeError(f"{type(self).__qualname__!r} object has no attribute {name!r}")
        if declared and attribute(type(self), name) is None and RESERVED in vars(type(self)):
            raise AttributeError(f"{type(self).__qualname__!r} object attribute {name!r} is read-only")
        object.__setattr__(self, name, value)

    def __getattribute__(self, name: str) -> Any:
        # Host memory is bytes here for the buffer protocol alone.
        if not name.startswith("__") and isinstance(self, bytes) and hasattr(bytes, name):
            raise AttributeError(f"{type(self).__qualname__!r} object has no attribute {name!r}")
        return object.__getattribute__(self, name)

    def __repr__(self) -> str:
        return f"<double of {type(self).__module__}.{type(self).__qualname__}>"


class Buffer(Double, bytes):
    """IHostMemory: `bytes(plan)`, `file.write(plan)` and `plan.nbytes` work, `len(plan)` does not."""

    __len__ = None  # type: ignore[assignment]
    __getitem__ = None  # type: ignore[assignment]
    __iter__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<double of host memory: {bytes(self)!r}>"


class Sizes(Double):
    """Dims and Permutation: a short list of numbers, equal to a list or tuple of the same ones."""

    def _numbers(self) -> list[int]:
        numbers: list[int] = vars(self).setdefault("_sizes", [])
        return numbers

    def _fill(self, arguments: Mapping[str, Any]) -> None:
        values = list(arguments.values())
        if len(values) == 1 and not hasattr(values[0], "__index__"):
            values = list(values[0])
        self._numbers()[:] = [int(value) for value in values]

    def __len__(self) -> int:
        return len(self._numbers())

    def __getitem__(self, index: Any) -> Any:
        found = self._numbers()[index]
        return tuple(found) if isinstance(found, list) else found

    def __setitem__(self, index: Any, value: Any) -> None:
        self._numbers()[index] = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Sizes, list, tuple)) and list(other) == self._numbers()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}{tuple(self._numbers())}"


class EnumMember(Double):
    """A member of a pybind11 enum. Its number is its place in the stub, not the library's."""

    _members: dict[str, Any]

    def __new__(cls, value: Any = None) -> Any:
        for member in cls._members.values():
            if value is not None and int(member) == int(value):
                return member
        raise TypeError(f"{cls.__qualname__}({value!r}): no such member")

    def __init__(self, value: Any = None) -> None:
        pass

    @property
    def name(self) -> str:
        return str(vars(self)["_name"])

    @property
    def value(self) -> int:
        return int(self)

    def __int__(self) -> int:
        return int(vars(self)["_value"])

    __index__ = __int__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return int(self)

    def __repr__(self) -> str:
        return f"<{type(self).__qualname__}.{self.name}: {int(self)}>"

    def __str__(self) -> str:
        return f"{type(self).__qualname__.rpartition('.')[2]}.{self.name}"


COMPARISONS: dict[str, Any] = {
    "__lt__": lambda self, other: int(self) < int(other),
    "__le__": lambda self, other: int(self) <= int(other),
    "__gt__": lambda self, other: int(self) > int(other),
    "__ge__": lambda self, other: int(self) >= int(other),
}


class TypedDictMaker(type):
    """The class of TypedDict doubles: makes plain dictionaries, with the declared keys only."""

    _required: frozenset[str]
    _optional: frozenset[str]

    def __call__(cls, **keywords: Any) -> dict[str, Any]:
        if not cls.__instancecheck__(keywords):
            raise TypeError(f"{cls.__qualname__} has the keys {sorted(cls._required | cls._optional)}")
        return keywords

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, dict) and cls._required <= value.keys() <= cls._required | cls._optional


def attribute(cls: type, name: str) -> Any:
    """The descriptor that makes `name` settable in instances of the class, or None."""
    for base in cls.__mro__:
        if name in vars(base):
            found = vars(base)[name]
            return found if hasattr(type(found), "__set__") else None
    return None
