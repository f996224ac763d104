"""Defines what a fault is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.load import STEADY
from tests.chaos.served import Served

ALL = frozenset(STEADY)


class CannotBeMade(Exception):
    """This machine lacks a right or a program for the fault: says which."""


@dataclass(frozen=True)
class Needs:
    """What a server has to be started with: see `Served`."""

    changes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()

    def __add__(self, other: Needs) -> Needs:
        changes = {
            model: {**self.changes.get(model, {}), **other.changes.get(model, {})}
            for model in {*self.changes, *other.changes}
        }
        return Needs(changes, {**self.environment, **other.environment}, self.prefix + other.prefix)

    def serve(self, directory: Path) -> Served:
        """Raises: Gone."""
        return Served(directory, changes=self.changes, environment=self.environment, prefix=self.prefix)


class Fault:
    """One fault in a server under load.

    Attributes:
        name: on the command line and in the table.
        harms: kinds of request that may fail.
        holds_s: between its begin and its end.
        each: clients of each kind.
        limit: the known limit of Triton by which it may end the whole server; empty: it must not.
    """

    name = ""
    harms: frozenset[str] = frozenset()
    holds_s = 0.0
    each: Mapping[str, int] = STEADY
    limit = ""

    def needs(self, directory: Path) -> Needs:
        """The server that it is made in, whose folder is `directory`. Raises: CannotBeMade."""
        return Needs()

    def inject(self, served: Served) -> None:
        """Makes it."""
        raise NotImplementedError

    def heal(self, served: Served) -> None:
        """Takes it away."""

    def close(self) -> None:
        """Ends what it started beside the server."""
