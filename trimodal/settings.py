"""Reads a model's `parameters` of config.pbtxt into one frozen settings object.

Triton hands every parameter over as a string; a pydantic model says which keys
exist, their types and their limits.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from trimodal.errors import SettingsError
from trimodal.host import host_cpus

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

S = TypeVar("S", bound="Settings")
T = TypeVar("T")
MAX_TOML_BYTES = 16 << 20
# Parameters that Triton's Python backend reads itself, of any model.
PYTHON_BACKENDS = ("FORCE_CPU_ONLY_INPUT_TENSORS", "EXECUTION_ENV_PATH")
MOST_NAMES = 24  # that an error lists


def read_toml(file: Path) -> dict[str, Any]:
    """Reads a TOML file. Raises: OSError; ValueError; RecursionError: nested too deeply."""
    with file.open("rb") as opened:
        raw = opened.read(MAX_TOML_BYTES + 1)  # /dev/zero has no end
    if len(raw) > MAX_TOML_BYTES:
        raise ValueError(f"it has more than {MAX_TOML_BYTES} bytes")
    values: dict[str, Any] = tomllib.loads(raw.decode())
    return values


class Settings(BaseModel):
    """Base of the settings of one model: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)


class EngineSettings(Settings):
    """Of a model whose engine computes on threads of the model's own process."""

    intra_op_threads: Annotated[int, Field(ge=0, le=256, description="0: every core of the process")] = 0
    stall_timeout_s: Annotated[
        float, Field(ge=0, le=86_400, description="a batch that takes so long ends the process; 0: never")
    ] = 300

    @property
    def threads(self) -> int:
        """Threads of one run: as set, or one for each core that this process may use."""
        return self.intra_op_threads or host_cpus()


def parse_parameters(cls: type[S], parameters: Mapping[str, str], *, source: str) -> S:
    """Settings from a config's string parameters.

    Raises: SettingsError: names `source`, every unknown or malformed key, and what was expected.
    """
    own = {name: value for name, value in parameters.items() if name not in PYTHON_BACKENDS}
    try:
        return cls.model_validate(own)
    except ValidationError as error:
        raise SettingsError(f"{source}: {describe(error, cls)}") from None


def read_as(kind: type[T], text: str, otherwise: T) -> T:
    """What a parameter's text says to the settings of a model; `otherwise`: it is refused."""
    try:
        return TypeAdapter(kind).validate_python(text)
    except ValidationError:  # said where settings are checked
        return otherwise


def describe(error: ValidationError, cls: type[BaseModel]) -> str:
    """One sentence for all problems in a validation error, each naming its key."""
    problems = []
    for problem in error.errors():
        key = shorten(".".join(str(part) for part in problem["loc"]) or "parameters")
        if problem["type"] == "extra_forbidden":
            problems.append(f"unknown parameter '{key}'{_hint(key, list(cls.model_fields))}")
        else:
            message = problem["msg"].removeprefix("Value error, ")
            problems.append(f"parameter '{key}' = {shorten(repr(problem['input']))}: {message}")
    return "; ".join(problems)


def _hint(key: str, known: Sequence[str]) -> str:
    """What may have been meant, or all that is known where that is not too much to read."""
    if near := get_close_matches(key.rpartition(".")[2], known, n=1):
        return f" (did you mean {near[0]}?)"
    return f" (known: {', '.join(known)})" if len(known) <= MOST_NAMES else ""


def shorten(text: str, most: int = 60) -> str:
    """What a message quotes of a value that may be long."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def parameters_of(model_config_json: str) -> dict[str, str]:
    """The `parameters` of the model configuration that Triton passes to a Python model, key → text."""
    config: dict[str, Any] = json.loads(model_config_json)
    return {key: value["string_value"] for key, value in config.get("parameters", {}).items()}
