"""Defines what a client needs of a transport: tensors in, tensors out, streams that can be cancelled.

`grpc` is the real one, `fake` the one for tests of applications.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from trimodal.client.values import Model
from trimodal.errors import InvalidArgument

Array = np.ndarray[Any, Any]
# STRING tensors are object arrays of bytes.
Tensors = Mapping[str, Array]
Parameter = bool | int | float | str
# 23 days: gRPC counts some milliseconds in 31 bits, and ends a call at once that is due in 300 years.
_LONGEST_S = 2_000_000.0


_LONGEST_ID = 128
_METADATA = re.compile(r"[a-z0-9_.-]+(?<!-bin)")  # names of texts, as gRPC takes them


def utf8(name: str, text: str) -> bytes:
    """Returns the bytes of a text. Raises: InvalidArgument, which names the argument."""
    if not isinstance(text, str):
        raise InvalidArgument(f"{name} is {type(text).__name__}: text is needed")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"{name} holds a lone surrogate: it is not valid Unicode") from None


def named(model: str) -> tuple[str, str]:
    """A model's name and its version; "": none is named. Raises: InvalidArgument: it is no text."""
    utf8("model", model)
    name, _, version = model.partition("@")
    return name, version


def check_id(request_id: str) -> None:
    """Raises: InvalidArgument: a request's id is too long for a log's line, or would write others."""
    if len(utf8("request_id", request_id)) > _LONGEST_ID or not request_id.isprintable():
        raise InvalidArgument(f"request_id: at most {_LONGEST_ID} bytes that can be printed are needed")


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Raises: InvalidArgument: HTTP/2 has no such header."""
    if not isinstance(metadata, Mapping):
        raise InvalidArgument(f"metadata is {type(metadata).__name__}: names and values are needed")
    for name, value in metadata.items():
        if not isinstance(name, str) or not _METADATA.fullmatch(name):
            raise InvalidArgument(
                f"metadata '{name}': a name of a-z, 0-9, _, . and - is needed, without -bin"
            )
        if not isinstance(value, str) or not (value.isascii() and value.isprintable()):
            raise InvalidArgument(f"metadata '{name}' is {value!r}: printable ASCII is needed")


@dataclass(frozen=True)
class Request:
    """One request to one model. Raises: InvalidArgument: its model is no text.

    Attributes:
        model: its name; "llm@2" is version 2 of it, without one Triton takes the highest.
        parameters: Triton's own (sequence_id, …) and the model's.
        metadata: headers of the gRPC call; names in lower case.
    """

    model: str
    inputs: Tensors
    id: str = ""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named(self.model)

    @property
    def name(self) -> str:
        """The model without its version."""
        return named(self.model)[0]


@dataclass(frozen=True)
class Timeouts:
    """Seconds. Without `total` an answer may take as long as it is not silent for longer than `silence`.

    More than 23 days, as math.inf, are 23 days.
    """

    connect: float = 5.0
    silence: float = 60.0
    total: float | None = None

    def __post_init__(self) -> None:
        for name in ("connect", "silence", "total"):
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, int | float | np.number) or not value > 0:
                raise ValueError(f"timeout '{name}' is {value!r}: it must be above 0 seconds")
            object.__setattr__(self, name, min(value, _LONGEST_S))


class Responses(Protocol):
    """An open stream of responses to one request."""

    async def read(self) -> Tensors | None:
        """Reads the outputs of the next response, or None at the end (also after `cancel`).

        Raises:
            RequestError: the server refused or ended the request.
            TransportError: the server did not answer.
        """

    def cancel(self) -> None:
        """Ends the request on the server at once. May be called at any time, and twice."""

    def finish(self) -> None:
        """Lets a request whose last output is here end by itself, while the caller goes on."""


class Transport(Protocol):
    """Carries requests to one server. Raises RequestError and TransportError, nothing else."""

    async def infer(self, request: Request, timeouts: Timeouts) -> Tensors:
        """Sends a request to a model that gives one response; returns its outputs."""

    async def stream(self, request: Request, timeouts: Timeouts) -> Responses:
        """Sends a request to a decoupled model."""

    async def ready(self, model: str, timeouts: Timeouts) -> bool:
        """Whether the model, or with "" the server, takes requests."""

    async def models(self, timeouts: Timeouts) -> list[Model]:
        """Lists the models that are ready, in the order of their names."""

    async def max_batch_size(self, model: str, timeouts: Timeouts) -> int:
        """From the model's configuration; 0: it takes no batches."""

    async def aclose(self) -> None:
        """Closes all connections; requests that run are cancelled."""
