"""Gives the commands the server's address, one sentence for a failure, and text that is safe to print."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import os
import re
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

if TYPE_CHECKING:
    from trimodal.client import Client

Url = Annotated[str, typer.Option(envvar="TRIMODAL_URL", help="host:port of the gRPC endpoint.")]
URL = "127.0.0.1:8001"
# A secret is never an argument: every user of the machine can read those of all processes.
OPERATOR_KEY, API_KEY = "TRIMODAL_OPERATOR_KEY", "TRIMODAL_API_KEY"
OperatorKeyFile = Annotated[
    Path | None,
    typer.Option(
        envvar=f"{OPERATOR_KEY}_FILE",
        help="file with the key of Triton's repository, shared-memory, trace and log APIs; "
        f"or the key itself in {OPERATOR_KEY}",
    ),
]
ApiKeyFile = Annotated[
    Path | None,
    typer.Option(envvar=f"{API_KEY}_FILE", help=f"file with an API key; or the key itself in {API_KEY}"),
]
# What a model writes must not steer the terminal: all control characters but newline and tab.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
Result = TypeVar("Result")


def with_settings(kind: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes options of the fields of a dataclass; the command's function gets the value as `settings`."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own = [
            parameter
            for parameter in inspect.signature(function, eval_str=True).parameters.values()
            if parameter.name != "settings"
        ]
        hints = get_type_hints(kind, include_extras=True)
        options = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=hints[field.name],
            )
            for field in dataclasses.fields(kind)
        ]

        @wraps(function)
        def command(**given: Any) -> None:
            arguments = {parameter.name: given.pop(parameter.name) for parameter in own}
            function(**arguments, settings=kind(**given))

        parameters = [*own, *options]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorate


def connect(url: str, *, silence: float) -> Client:
    """The client of a command; tests put another one here."""
    from trimodal.client import Client, Timeouts

    try:
        return Client(url, timeouts=Timeouts(silence=silence))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def read_key(file: Path | None, variable: str) -> str:
    """The key of the file, else of the environment's variable, else nothing. Raises: SettingsError."""
    from trimodal.errors import SettingsError

    try:
        key = file.read_text().strip() if file else os.environ.get(variable, "")
    except (OSError, ValueError) as error:
        raise SettingsError(f"{file}: {getattr(error, 'strerror', None) or error}") from None
    if (file and not key) or not re.fullmatch(r"[!-~]*", key):
        raise SettingsError(f"{file or variable} has no key of printable ASCII without spaces")
    return key


def check_writable(option: str, path: Path) -> None:
    """Raises: typer.BadParameter: an hour of figures must not end in a file that cannot be written."""
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise typer.BadParameter(f"{option} {path}: no file can be written there")


@contextmanager
def one_sentence(command: str = "trimodal", code: int = 1) -> Iterator[None]:
    """Ends the command with an exit code and one sentence when something of ours is refused or fails."""
    from trimodal.errors import TrimodalError

    try:
        yield
    except TrimodalError as error:
        typer.echo(f"{command}: {sentence(error)}", err=True)
        raise typer.Exit(code) from None


def sentence(error: Exception) -> str:
    """An error as a person at a terminal needs it, with the remedy where it is known."""
    remedy = ": start one with `trimodal serve`" if str(error).startswith("no server at ") else ""
    return f"{error}{remedy}"


def plain(text: str) -> str:
    """Text of a model as it may be written to a terminal."""
    return _CONTROL.sub("", text)


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Runs a command's coroutine; Ctrl-C cancels it, also on the server; exit code 130."""
    try:
        return asyncio.run(main)
    except KeyboardInterrupt:
        typer.echo(err=True)
        raise typer.Exit(130) from None


@contextmanager
def on_interrupt(loop: asyncio.AbstractEventLoop, handler: Callable[[], object]) -> Iterator[None]:
    """Ctrl-C calls `handler`, where the platform and the thread allow that."""
    with suppress(NotImplementedError, RuntimeError):
        loop.add_signal_handler(signal.SIGINT, handler)
    try:
        yield
    finally:
        with suppress(NotImplementedError, RuntimeError):
            loop.remove_signal_handler(signal.SIGINT)


def is_terminal() -> bool:
    """Whether a person types the input."""
    return sys.stdin.isatty()
