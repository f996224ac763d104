"""Defines what a client needs of a transport: tensors in, tensors out, streams that can be cancelled.

`grpc` is the real one, `fake` the one for tests of applications.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from trimodal.client.values import Model

Array = np.ndarray[Any, Any]
# STRING tensors are object arrays of bytes.
Tensors = Mapping[str, Array]
Parameter = bool | int | float | str
# 23 days: gRPC counts some milliseconds in 31 bits, and ends a call at once that is due in 300 years.
_LONGEST_S = 2_000_000.0


def named(model: str) -> tuple[str, str]:
    """A model's name and its version; "": none is named."""
    name, _, version = model.partition("@")
    return name, version


@dataclass(frozen=True)
class Request:
    """One request to one model.

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
            if not value > 0:
                raise ValueError(f"timeout '{name}' is {value}: it must be above 0 seconds")
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
