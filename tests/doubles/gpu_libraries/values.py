"""What a double gives for an annotation when nothing is scripted, and which values it takes as arguments."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.doubles.gpu_libraries.stubs import Form, Function, Key, Stubs, decorators, parameters

NEUTRAL: dict[str, Any] = {"bool": True, "int": 0, "float": 0.0, "str": "", "bytes": b"", "buffer": b""}
CONTAINERS: dict[str, Any] = {"list": list, "set": set, "dict": dict, "iterable": list}


class Classes(Protocol):
    stubs: Stubs

    def of(self, key: Key) -> Any: ...
    def blank(self, key: Key) -> Any: ...
    def from_plain(self, key: Key, value: object) -> Any: ...


def default(classes: Classes, form: Form, instance: object = None) -> Any:
    """The value of a call whose stub says `form`: true, 0, "", an empty list, a new instance, else None."""
    if form.kind in NEUTRAL:
        return NEUTRAL[form.kind]
    if form.kind in CONTAINERS:
        return CONTAINERS[form.kind]()
    if form.kind == "iterator":
        return iter(())
    if form.kind == "tuple":
        return tuple(default(classes, part) for part in form.parts if part.kind != "any")
    if form.kind == "literal":
        return form.values[0]
    if form.kind == "union":
        return default(classes, form.parts[0], instance)
    if form.kind == "class":
        return classes.blank(form.key)
    return instance if form.kind == "self" else None


def accepts(classes: Classes, form: Form, value: Any) -> bool:
    """Whether a value may stand where the stub says `form`; what the stub leaves open takes anything."""
    kind = form.kind
    if kind == "none":
        return value is None
    if kind == "bool":
        return isinstance(value, bool) or type(value).__name__ == "bool_"
    if kind == "int":
        return not isinstance(value, (str, float)) and (
            hasattr(value, "__index__") or hasattr(value, "__int__")
        )
    if kind == "float":
        return not isinstance(value, str) and (hasattr(value, "__float__") or hasattr(value, "__index__"))
    if kind == "str":
        return isinstance(value, str)
    if kind == "path":
        return isinstance(value, Path)
    if kind in ("bytes", "buffer"):
        return _is_buffer(value)
    if kind == "literal":
        return any(type(value) is type(one) and value == one for one in form.values)
    if kind == "union":
        return any(accepts(classes, part, value) for part in form.parts)
    if kind == "dict":
        return isinstance(value, Mapping)
    if kind in ("list", "set", "iterable"):
        # pybind11 takes any sequence where a stub says list.
        wanted = {"list": Sequence, "set": set, "iterable": Iterable}[kind]
        fits = isinstance(value, wanted) and not isinstance(value, (str, bytes))
        return fits and all(accepts(classes, form.parts[0], one) for one in value if form.parts)
    if kind == "tuple":
        return isinstance(value, tuple)
    if kind == "class":
        wanted = classes.of(form.key)
        plain = isinstance(value, (tuple, list)) and classes.from_plain(form.key, value) is not None
        return plain or isinstance(value, wanted)
    return True


def convert(classes: Classes, form: Form, value: Any) -> Any:
    """A scripted value as the class that the stub promises: bytes as host memory, a tuple as Dims."""
    if form.kind == "class" and not isinstance(value, classes.of(form.key)):
        made = classes.from_plain(form.key, value)
        return value if made is None else made
    if form.kind == "union" and value is not None:
        for part in form.parts:
            value = convert(classes, part, value)
    if form.kind == "list" and form.parts and isinstance(value, list):
        return [convert(classes, form.parts[0], one) for one in value]
    return value


class Signatures:
    """The overloads of one function; a call must fit one of them in names, number and types."""

    def __init__(
        self, classes: Classes, module: str, title: str, nodes: Sequence[Function], *, method: bool
    ) -> None:
        self._classes, self._title = classes, title
        overloads = [node for node in nodes if "overload" in decorators(node)] or [nodes[-1]]
        self._overloads = []
        for node in overloads:
            rows = parameters(node, bound=method)
            forms = {parameter.name: classes.stubs.form(module, written) for parameter, written in rows}
            signature = inspect.Signature([parameter for parameter, _ in rows])
            self._overloads.append((signature, forms, classes.stubs.form(module, node.returns)))

    def bind(
        self, args: Sequence[Any], keywords: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], Form]:
        """Returns the arguments given, those with the defaults filled in, and what the call returns.

        Raises:
            TypeError: names what does not fit, for each overload.
        """
        reasons = []
        for signature, forms, returned in self._overloads:
            try:
                bound = signature.bind(*args, **keywords)
            except TypeError as error:
                reasons.append(str(error))
                continue
            given = _flat(signature, bound.arguments)
            wrong = [name for name, value in given.items() if not self._fits(signature, forms, name, value)]
            if wrong:
                reasons.append(f"{wrong[0]}={given[wrong[0]]!r} is of another type than declared")
                continue
            bound.apply_defaults()
            return given, _flat(signature, bound.arguments), returned
        raise TypeError(f"{self._title}(): " + "; ".join(dict.fromkeys(reasons)))

    def _fits(
        self, signature: inspect.Signature, forms: Mapping[str, Form], name: str, value: object
    ) -> bool:
        parameter = signature.parameters.get(name)
        if parameter is None or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            return True
        return (value is None and parameter.default is None) or accepts(self._classes, forms[name], value)


def _flat(signature: inspect.Signature, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name, those of `**kwargs` beside the others."""
    flat = dict(arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD and name in flat:
            flat |= flat.pop(name)
    return flat


def _is_buffer(value: object) -> bool:
    try:
        memoryview(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True
