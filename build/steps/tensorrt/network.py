"""Reads an ONNX graph into a TensorRT network, and makes optimisation profiles that fit it.

Every complaint of the parser is printed whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from steps.tensorrt.messages import Messages

from trimodal.errors import ArtefactError
from trimodal.manifest import InputRange

if TYPE_CHECKING:
    import tensorrt

T = TypeVar("T")
Profile = Mapping[str, InputRange]


def made(what: str, make: Callable[[], T], messages: Messages) -> T:
    """`make()`, whose bindings raise TypeError where the library gives them nothing (no CUDA device, say).

    Raises:
        ArtefactError: with what the library logged.
    """
    try:
        return make()
    except (TypeError, RuntimeError) as error:
        why = messages.last_errors() if messages.errors else str(error)
        raise ArtefactError(
            f"TensorRT makes no {what.removeprefix('a ').removeprefix('an ')}: {why}"
        ) from None


def parse(parser: tensorrt.OnnxParser, graph: Path) -> None:
    """Reads `graph` by its path, so that weights beside it are found; prints all errors where it fails."""
    if parser.parse_from_file(str(graph)):
        return
    errors: list[tensorrt.ParserError] = [parser.get_error(index) for index in range(parser.num_errors)]
    screen = Console(stderr=True)
    for number, error in enumerate(errors, 1):
        screen.print(
            f"{number}. {describe(error)}", markup=False, emoji=False, highlight=False, soft_wrap=True
        )
    first = f", the first: {errors[0].desc()}" if errors else ""
    raise ArtefactError(f"TensorRT's ONNX parser refuses {graph} ({len(errors)} errors above{first})")


def describe(error: tensorrt.ParserError) -> str:
    """All that the parser tells: code, node, description, its own source line, functions around the node."""
    where = f"node {error.node()} {error.node_name()!r} ({error.node_operator() or 'no operator'})"
    around = error.local_function_stack()
    inside = f", inside {' > '.join(around)}" if around else ""
    source = f"{error.file()}:{error.line()} {error.func()}"
    return f"{error.code()} at {where}{inside}: {error.desc()} [{source}]"


def add_profile(
    builder: tensorrt.Builder,
    config: tensorrt.IBuilderConfig,
    profile: Profile,
    where: str,
    messages: Messages,
) -> None:
    """Adds an optimisation profile. Raises: ArtefactError when TensorRT does not take it, with its reason."""
    import tensorrt as trt

    made = builder.create_optimization_profile()
    try:
        for name, shapes in profile.items():
            made.set_shape(
                name, trt.Dims(list(shapes.min)), trt.Dims(list(shapes.opt)), trt.Dims(list(shapes.max))
            )
    except (ValueError, RuntimeError) as error:
        raise ArtefactError(f"{where}: TensorRT refuses {name} {profile[name]}: {error}") from None
    if not made or config.add_optimization_profile(made) < 0:
        raise ArtefactError(f"{where}: TensorRT refuses it: {messages.last_errors()}")
