"""Recording doubles of tensorrt, tensorrt_llm and vllm, generated from their type stubs in tests/typings/.

    recorder = Recorder()
    tensorrt = install(monkeypatch, "tensorrt-11.4", recorder)
    recorder.returns("Builder.build_serialized_network", b"plan")
    recorder.raises("Runtime.deserialize_cuda_engine", MemoryError())
    recorder.returns("OnnxParser.num_errors", 2)                      # attributes and properties too
    … run the code …
    recorder.named("IOptimizationProfile.set_shape")[0].arguments["max"] == (8, 3, 224, 224)

A name, an argument, a type or an enum member that the stub lacks raises AttributeError or TypeError; so do
names that a stub leaves open with a `__getattr__`.
What is proven: that the code uses what the library declares, in which order and with which values.
Not proven: what the library does with it. Numbers of enums are not the library's.
"""

from __future__ import annotations

import ast
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.doubles.gpu_libraries.classes import Factory
from tests.doubles.gpu_libraries.members import method, new
from tests.doubles.gpu_libraries.stubs import Name, read
from tests.doubles.gpu_libraries.values import default

TYPINGS = Path(__file__).resolve().parents[2] / "typings"


@dataclass
class Call:
    """One call: of a method, a function, or a class (its name alone; `instance` is the new object then)."""

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
        """From now on the call gives `value`; a callable gets (instance, **arguments) and gives its result.

        Bytes become host memory and tuples Dims where the stub says so. An `__aiter__` is best
        scripted with an async generator function, `__anext__` with a function, which may be async.
        """
        self._scripts.insert(0, (name, value))

    def raises(self, name: str, error: BaseException) -> None:
        """From now on the call raises the error; for a class its constructor does."""

        def fail(instance: object, **arguments: object) -> None:
            raise error

        self._scripts.insert(0, (name, fail))

    def perform(
        self,
        names: Sequence[str],
        instance: object,
        arguments: dict[str, Any],
        produce: Callable[[], Any],
        finish: Callable[[Any], Any] = lambda value: value,
        *,
        record: bool = True,
    ) -> Any:
        """For the doubles: records the call, then gives what is scripted, else what `produce` gives."""
        call = Call(names[0], instance, arguments, names=names)
        if record:
            self.calls.append(call)
        for name, script in self._scripts:
            if _matches(name, names):
                value = script(instance, **arguments) if _is_function(script) else script
                break
        else:
            value = produce()
        call.result = finish(value)
        return call.result


class Module(ModuleType):
    """A module of the stubs; only names that they declare can be set, as `__version__`."""

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("__") and name not in vars(self):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        super().__setattr__(name, value)


def install(monkeypatch: pytest.MonkeyPatch, folder: str, recorder: Recorder) -> ModuleType:
    """Puts the package of a folder of tests/typings/ ("tensorrt-11.4") into sys.modules for one test.

    `__version__` is the stubs' (TensorRT's stub declares none, the real package has one); a test may set it.
    """
    stubs = read(TYPINGS / folder)
    factory = Factory(stubs, recorder.perform, pybind=stubs.root == "tensorrt")
    modules = {name: Module(name) for name in stubs.trees}
    for name, module in modules.items():
        package = name in stubs.packages
        module.__spec__ = importlib.machinery.ModuleSpec(name, loader=None, is_package=package)
        vars(module)["__path__" if package else "__file__"] = [] if package else f"{name}.pyi"
        for attribute, meaning in stubs.names(name).items():
            if meaning.exported and attribute != "__getattr__":
                vars(module)[attribute] = _value(factory, modules, meaning)
        parent, _, last = name.rpartition(".")
        if parent:
            vars(modules[parent]).setdefault(last, module)
        monkeypatch.setitem(sys.modules, name, module)
    vars(modules[stubs.root])["__version__"] = stubs.version
    return modules[stubs.root]


def make(cls: Any, content: bytes = b"", **attributes: Any) -> Any:
    """An object that the library itself makes (a result, host memory of `content`), its attributes set.

    Raises:
        AttributeError, TypeError: an attribute that the stub does not declare, or of another type.
    """
    return new(cls, content, **attributes)


def _value(factory: Factory, modules: dict[str, Module], meaning: Name) -> Any:
    if meaning.kind == "module":
        return modules[meaning.module]
    if meaning.kind == "class":
        return factory.of((meaning.module, meaning.qualname))
    if meaning.kind == "function":
        nodes: Any = meaning.nodes
        return method(factory, (meaning.module, ""), meaning.qualname, nodes).__func__
    node = meaning.nodes[0]
    assert isinstance(node, (ast.AnnAssign, ast.Assign))
    if meaning.qualname == "__version__":
        return factory.stubs.version
    if isinstance(node.value, (ast.Constant, ast.List)):
        return ast.literal_eval(node.value)
    annotation = node.annotation if isinstance(node, ast.AnnAssign) else None
    return default(factory, factory.stubs.form(meaning.module, annotation))


def _matches(name: str, names: Sequence[str]) -> bool:
    return any(one == name or one.endswith(f".{name}") for one in names)


def _is_function(script: Any) -> bool:
    return callable(script) and not isinstance(script, type) and not hasattr(type(script), "_double")
