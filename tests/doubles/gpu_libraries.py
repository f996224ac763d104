"""Recording doubles of tensorrt, tensorrt_llm and vllm: their type stubs in tests/typings/, run as modules.

    recorder = Recorder()
    tensorrt = install(monkeypatch, "tensorrt-11.4", recorder)
    recorder.returns("Builder.build_serialized_network", b"plan")
    recorder.raises("Runtime.deserialize_cuda_engine", MemoryError())
    recorder.returns("OnnxParser.num_errors", 2)                      # attributes and properties too
    … run the code …
    recorder.named("IOptimizationProfile.set_shape")[0].arguments["max"] == (8, 3, 224, 224)

A name, an argument or an enum member that the stub lacks raises AttributeError or TypeError; types are mypy's
work, over the same stubs. Proven: that the code uses what the library declares, in which order and with which
values. Not proven: what the library does with it. Numbers of enums are not the library's.
"""

from __future__ import annotations
import __future__

import enum
import functools
import importlib
import importlib.abc
import importlib.util
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typing_extensions

TYPINGS = Path(__file__).resolve().parents[1] / "typings"


@dataclass
class Call:
    """One call: of a method, or a class (its name alone; `instance` is the new object then)."""

    name: str
    instance: object | None
    arguments: dict[str, object]
    """Those given, by the stub's parameter names; what the caller left out is not here."""
    result: object = None
    names: Sequence[str] = field(default=(), repr=False)
    """All names of it: of re-exports, and of the base class that defines it."""


class Recorder:
    """The calls of all modules of one `install` after another, in order, and what they shall give."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._scripts: list[tuple[str, Any]] = []

    def named(self, name: str) -> list[Call]:
        """The calls whose dotted name ends so: "create_network", "Builder.create_network", …"""
        return [call for call in self.calls if _matches(name, call.names)]

    def returns(self, name: str, value: Any) -> None:
        """From now on the call gives `value`; a function gets (instance, **arguments) and gives its result.

        An `__aiter__` is best scripted with an async generator function, `__anext__` with a function.
        """
        self._scripts.insert(0, (name, value))

    def raises(self, name: str, error: BaseException) -> None:
        """From now on the call raises the error; for a class its constructor does."""

        def fail(instance: object, **arguments: object) -> None:
            raise error

        self.returns(name, fail)

    def perform(
        self,
        names: Sequence[str],
        instance: object,
        arguments: dict[str, Any],
        produce: Callable[[], Any],
        *,
        record: bool = True,
    ) -> Any:
        """For the doubles: records the call, then gives what is scripted, else what `produce` gives."""
        call = Call(names[0], instance, arguments, names=names)
        if record:
            self.calls.append(call)
        for name, script in self._scripts:
            if _matches(name, names):
                call.result = script(instance, **arguments) if inspect.isroutine(script) else script
                return call.result
        call.result = produce()
        return call.result


class HostMemory(bytes):
    """IHostMemory: `bytes(plan)`, `file.write(plan)` and `plan.nbytes` work, `len(plan)` does not."""

    __len__ = None  # type: ignore[assignment]

    @property
    def nbytes(self) -> int:
        return memoryview(self).nbytes


class Dims(tuple[int, ...]):
    """Sizes, as the library has them."""


class PybindEnum(enum.Enum):
    """An enum of pybind11: its members are numbers, but cannot be joined by `|`."""

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__


PLAIN: dict[str, type] = {"IHostMemory": HostMemory, "Dims": Dims}
NEUTRAL: dict[Any, Any] = {
    bool: True, int: 0, float: 0.0, str: "", HostMemory: HostMemory(), Dims: Dims(),
}  # fmt: skip


class Attribute:
    """An annotated attribute or a property: what is scripted, else what was set, else the stub's default."""

    def __init__(self, owner: Owner, name: str, annotation: Any, default: Any, *, settable: bool) -> None:
        self._owner, self._name, self._annotation, self._default = owner, name, annotation, default
        self._settable = settable

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            raise AttributeError(f"{owner.__qualname__} has {self._name!r} on its instances only")
        names = self._owner.names(type(instance), self._name)
        return self._owner.recorder.perform(names, instance, {}, lambda: self._held(instance), record=False)

    def __set__(self, instance: Any, value: Any) -> None:
        if not self._settable:
            raise AttributeError(f"property {self._name!r} of {type(instance).__qualname__!r} has no setter")
        vars(instance)[self._name] = value

    def _held(self, instance: Any) -> Any:
        if vars(instance).get(self._name, ...) is ...:
            default = self._default
            if default is ...:
                default = _parameters(type(instance)).get(self._name, ...)
            vars(instance)[self._name] = (
                self._owner.made(self._annotation, instance) if default is ... else default
            )
        return vars(instance)[self._name]


@dataclass
class Owner:
    """The module that defines a class, and who records its calls."""

    module: ModuleType
    recorder: Recorder
    _names: dict[tuple[type, str], list[str]] = field(default_factory=dict)

    def names(self, cls: type, member: str = "") -> list[str]:
        """All names under which a call may be asked for: of the object's class first, then of its bases."""
        if (cls, member) not in self._names:
            self._names[cls, member] = self._found(cls, member)
        return self._names[cls, member]

    def _found(self, cls: type, member: str) -> list[str]:
        root = self.module.__name__.partition(".")[0]
        modules = [one for name, one in sys.modules.items() if name.partition(".")[0] == root]
        found = []
        for base in cls.__mro__:
            if "_owner" in vars(base):
                here = [f"{one.__name__}.{n}" for one in modules for n, v in vars(one).items() if v is base]
                found += sorted(here or [base.__qualname__], key=lambda name: (name.count("."), len(name)))
                if not member or member in vars(base):  # a constructor is one class's
                    break
        return [f"{name}.{member}" if member else name for name in found]

    def made(self, annotation: Any, instance: object = None) -> Any:
        """A value of what the stub says: true, 0, "", an empty list, a new object, else None."""
        kind = eval(annotation, vars(self.module)) if isinstance(annotation, str) else annotation
        origin, inside = typing.get_origin(kind), typing.get_args(kind)
        if origin in (typing.Union, types.UnionType):
            return self.made(inside[0], instance)
        if origin is typing.Literal:
            return inside[0]
        if kind is typing_extensions.Self:
            return instance
        if (origin or kind) in (list, set, dict):
            return (origin or kind)()
        if kind in NEUTRAL:
            return NEUTRAL[kind]
        if isinstance(kind, enum.EnumMeta):
            return next(iter(kind))
        return make(kind) if isinstance(kind, type) and hasattr(kind, "_owner") else None


def install(monkeypatch: pytest.MonkeyPatch, folder: str, recorder: Recorder) -> ModuleType:
    """Puts the package of a folder of tests/typings/ ("tensorrt-11.4") into sys.modules for one test.

    `__version__` is the stubs' (TensorRT's stub declares none, the real package has one); a test may set it.
    """
    finder = _Finder(TYPINGS / folder, recorder)
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    for name in finder.files:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))  # undone after the test
        del sys.modules[name]
    for name in finder.files:
        importlib.import_module(name)
    root = min(finder.files, key=len)
    header = finder.files[root].read_text().partition("\n")[0]
    version = re.search(r"\d+(\.\d+)+", header)
    assert version, header
    vars(sys.modules[root])["__version__"] = version.group()
    return sys.modules[root]


def make(cls: Any, content: bytes = b"", **attributes: Any) -> Any:
    """An object that the library itself makes (a result, host memory of `content`), its attributes set.

    Raises:
        AttributeError: an attribute that the stub does not declare.
    """
    if issubclass(cls, HostMemory):
        return cls(content)
    made = object.__new__(cls)
    for name, value in attributes.items():
        if not isinstance(inspect.getattr_static(cls, name, None), Attribute):
            raise AttributeError(f"{cls.__qualname__!r} object has no attribute {name!r}")
        vars(made)[name] = value
    return made


class _Module(ModuleType):
    """A module of the stubs; only names that they declare can be set, as `__version__`."""

    def __setattr__(self, name: str, value: object) -> None:
        declared = name.startswith("__") or name in vars(self) or isinstance(value, ModuleType)
        if not declared:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        super().__setattr__(name, value)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the stubs of one folder: each runs as it stands, then its classes are made to record."""

    def __init__(self, folder: Path, recorder: Recorder) -> None:
        self._recorder = recorder
        self.files = {
            ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): path
            for path in folder.rglob("*.pyi")
        }

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> Any:
        if (file := self.files.get(fullname)) is None:
            return None
        package = file.stem == "__init__"
        return importlib.util.spec_from_loader(fullname, self, origin=str(file), is_package=package)

    def create_module(self, spec: Any) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        exec(_compiled(self.files[module.__name__]), vars(module))
        for cls in list(vars(module).values()):
            if isinstance(cls, type) and cls.__module__ == module.__name__:
                _dress(Owner(module, self._recorder), module, cls)


@functools.lru_cache
def _compiled(file: Path) -> types.CodeType:
    flags = __future__.annotations.compiler_flag
    return compile(file.read_text(), str(file), "exec", flags=flags, dont_inherit=True)


def _dress(owner: Owner, place: Any, cls: Any) -> None:
    """Makes a class of a stub record its calls and refuse what it does not declare."""
    annotations = {name: str(written) for name, written in vars(cls).get("__annotations__", {}).items()}
    if cls.__name__ in PLAIN or "__members__" in annotations:
        members = [
            name for name, written in annotations.items() if written == f"ClassVar[{cls.__qualname__}]"
        ]
        setattr(place, cls.__name__, PLAIN.get(cls.__name__) or PybindEnum(cls.__name__, members, start=0))
        return
    if issubclass(cls, (enum.Enum, BaseException)):
        return
    for inner in [one for one in vars(cls).values() if isinstance(one, type)]:
        _dress(owner, cls, inner)
    for name, found in list(vars(cls).items()):
        if isinstance(found, property):
            written = inspect.signature(found.fget).return_annotation
            setattr(cls, name, Attribute(owner, name, written, ..., settable=bool(found.fset)))
        elif name == "__init__":
            cls.__init__ = _constructor(owner, found)
        elif inspect.isfunction(found) and name not in ("__eq__", "__repr__"):  # a dataclass's own
            setattr(cls, name, _method(owner, name, found))
        elif isinstance(found, classmethod):
            setattr(cls, name, classmethod(_method(owner, name, found.__func__)))
    for name, written in annotations.items():
        if written.startswith("ClassVar["):
            setattr(cls, name, getattr(cls.Severity, name))  # of a logger: there are no others
        else:
            setattr(cls, name, Attribute(owner, name, written, vars(cls).get(name, ...), settable=True))
    cls._owner = owner
    cls.__setattr__ = _set_declared


def _set_declared(self: Any, name: str, value: object) -> None:
    """Only declared attributes can be set; a subclass in Python may add its own."""
    declared = inspect.getattr_static(type(self), name, None)
    if "_owner" in vars(type(self)) and not isinstance(declared, Attribute):
        raise AttributeError(f"{type(self).__qualname__!r} object has no attribute {name!r}")
    object.__setattr__(self, name, value)


def _method(owner: Owner, name: str, declared: Any) -> Any:
    signature = inspect.signature(declared)
    record = not name.startswith("__")

    def result(instance: Any) -> Any:
        if name == "__anext__":
            raise StopAsyncIteration
        cls = isinstance(instance, type)
        return owner.made(signature.return_annotation, make(instance) if cls else instance)

    @functools.wraps(declared)
    def call(instance: Any, *args: Any, **keywords: Any) -> Any:
        given = _bound(signature, instance, args, keywords)
        names = owner.names(instance if isinstance(instance, type) else type(instance), name)
        return owner.recorder.perform(names, instance, given, lambda: result(instance), record=record)

    @functools.wraps(declared)
    async def awaited(instance: Any, *args: Any, **keywords: Any) -> Any:
        value = call(instance, *args, **keywords)
        return await value if inspect.isawaitable(value) else value

    return awaited if inspect.iscoroutinefunction(declared) else call


def _constructor(owner: Owner, declared: Any) -> Any:
    """`__init__`: keeps the arguments that are attributes of the class too."""
    signature = inspect.signature(declared)

    @functools.wraps(declared)
    def __init__(self: Any, *args: Any, **keywords: Any) -> None:
        given = _bound(signature, self, args, keywords)
        for name, value in given.items():
            if isinstance(inspect.getattr_static(type(self), name, None), Attribute):
                vars(self)[name] = value
        owner.recorder.perform(owner.names(type(self)), self, given, lambda: self)

    return __init__


def _bound(
    signature: inspect.Signature, instance: Any, args: Sequence[Any], keywords: dict[str, Any]
) -> dict[str, Any]:
    """The arguments by name, without the object itself; TypeError where they do not fit."""
    _, *given = signature.bind(instance, *args, **keywords).arguments.items()
    return dict(given)


def _parameters(cls: type) -> dict[str, Any]:
    """The constructor's defaults."""
    declared = inspect.signature(cls.__init__).parameters.values()
    return {one.name: one.default for one in declared if one.default is not one.empty}


def _matches(name: str, names: Sequence[str]) -> bool:
    return any(one == name or one.endswith(f".{name}") for one in names)
