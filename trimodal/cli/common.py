"""Gives the commands the server's address, one sentence for a failure, and text that is safe to print."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

import typer

if TYPE_CHECKING:
    import asyncio

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


def _take_file(context: typer.Context, file: Path | None) -> Path | None:
    """Makes what a TOML file says the defaults of the command's options. Raises: typer.BadParameter."""
    if file is None:
        return None
    from trimodal.settings import read_toml

    try:
        given = read_toml(file)
    except (OSError, ValueError, RecursionError) as error:
        raise typer.BadParameter(f"{file}: {getattr(error, 'strerror', None) or error}") from None
    known = {
        name.removeprefix("--").replace("-", "_"): option
        for option in context.command.params
        for name in option.opts
        if name not in ("--config", "--help")
    }
    defaults: dict[str, Any] = {}
    for name, value in given.items():
        option = known.get(name.replace("-", "_"))
        if option is None or option.name is None:
            raise typer.BadParameter(f"{file}: there is no option {name}")
        values = value if isinstance(value, list) else [value]
        is_flag, multiple = (getattr(option, kind, False) for kind in ("is_flag", "multiple"))
        fits = all(isinstance(one, str | int | float) and is_flag >= isinstance(one, bool) for one in values)
        if not fits or (isinstance(value, list) and not multiple):
            raise typer.BadParameter(f"{file}: {name} cannot be {str(value)[:60]}")
        texts = [one if isinstance(one, bool) else str(one) for one in values]
        defaults[option.name] = texts if multiple else texts[0]
    context.default_map = {**(context.default_map or {}), **defaults}
    return file


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        envvar="TRIMODAL_CONFIG",
        is_eager=True,
        callback=_take_file,
        help="TOML file of these options, as http-port = 8000; the environment comes before it",
    ),
]
VARIABLE = "TRIMODAL_*"
"""As `envvar` of an option: the variable is called as the option is."""


def _with_variable(name: str, hint: Any) -> Any:
    """The annotation of an option with the name of its variable filled in."""
    option = get_args(hint)[1]
    if option.envvar != VARIABLE:
        return hint
    option = copy(option)
    # Inside Annotated the first of its names stands where a default would.
    given = (option.default, *(option.param_decls or ()))
    long = next((one for one in given if str(one).startswith("--")), name)
    option.envvar = VARIABLE.replace("*", long.strip("-_").replace("-", "_").upper())
    return Annotated[get_args(hint)[0], option]


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
                annotation=_with_variable(field.name, hints[field.name]),
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
    from trimodal.files import read_at_most

    try:
        key = read_at_most(file).decode().strip() if file else os.environ.get(variable, "")
    except (OSError, ValueError) as error:
        raise SettingsError(f"{file}: {getattr(error, 'strerror', None) or error}") from None
    if (file and not key) or not re.fullmatch(r"[!-~]*", key):
        raise SettingsError(f"{file or variable} has no key of printable ASCII without spaces")
    return key


def is_given(context: typer.Context, option: str) -> bool:
    """Whether the user gave this option, as `max_in_flight`, be it with its default."""
    source = context.get_parameter_source(option)
    return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")


def is_typed(context: typer.Context, option: str) -> bool:
    """Whether it stands on the command line: what the environment says may be meant for other commands."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def check_writable(option: str, path: Path) -> None:
    """Raises: typer.BadParameter: an hour of figures must not end in a file that cannot be written."""
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise typer.BadParameter(f"{option} {path}: no file can be written there")


@contextmanager
def one_sentence(command: str = "trimodal", code: int = 1, *, of_libraries: bool = True) -> Iterator[None]:
    """Ends the command with an exit code and one sentence when something of ours is refused or fails.

    What the machine refuses, as a full disk does, is the operator's to mend as well; so is, with
    `of_libraries`, an OSError without its number, which a library made. A reader of our output that has ended
    is typer's to tell.
    """
    from trimodal.errors import STARVED, TrimodalError, is_starved, refused_by_system

    try:
        yield
    except TrimodalError as error:
        why = sentence(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno is None and not of_libraries:
            raise
        why = refused_by_system(error)
    except STARVED as error:
        if not is_starved(error):
            raise
        from trimodal.server.triton_log import sentence as told

        why = told(f"{type(error).__name__}: {error}")
    else:
        return
    typer.echo(f"{command}: {why}", err=True)
    raise typer.Exit(code)


def sentence(error: Exception) -> str:
    """An error as a person at a terminal needs it, with the remedy where it is known."""
    remedy = ": start one with `trimodal serve`" if str(error).startswith("no server at ") else ""
    return f"{error}{remedy}"


def plain(text: str) -> str:
    """Text of a model as it may be written to a terminal."""
    return _CONTROL.sub("", text)


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Runs a command's coroutine; Ctrl-C cancels it, also on the server; exit code 130."""
    import asyncio

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
    return sys.stdin is not None and sys.stdin.isatty()  # None: it was closed before this process began


def read_stdin() -> str:
    """The text of standard input, without its last line's end. Raises: typer.BadParameter: there is none."""
    if sys.stdin is None:
        raise typer.BadParameter("standard input is closed")
    try:
        return sys.stdin.read().rstrip("\n")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"standard input is no text in {error.encoding.upper()}") from None
