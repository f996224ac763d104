"""Defines what a waterfall consists of: spans of one request's time, pieces of its answer, four parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

Part = Literal["network", "queue", "processing", "response"]
TRITON = "Triton"
PARTS: tuple[Part, ...] = ("network", "queue", "processing", "response")


@dataclass(frozen=True)
class Span:
    """Something that took time; seconds since the client sent the request.

    Attributes:
        place: who did it: client, Triton, or a model's name.
        depth: a span stands inside the last one before it that has less depth.
    """

    name: str
    begin: float
    end: float
    part: Part
    place: str
    depth: int = 0

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    def within(self, begin: float, end: float) -> Span:
        """What of it lies between two times."""
        low = min(max(self.begin, begin), end)
        return replace(self, begin=low, end=min(max(self.end, low), end))


@dataclass(frozen=True)
class Piece:
    """A piece of the answer. `made`: when its text came out of the engine; None: not known."""

    received: float
    text: str = ""
    made: float | None = None


@dataclass(frozen=True)
class Waterfall:
    """Where the time of one request went.

    Attributes:
        kind, asked, answer: what was asked of whom, in words, and what came.
        total: the client sends, to the client has the whole answer; seconds.
        spans: in the order of a drawing; children follow the span that they stand in.
        sources: where the times come from. notes: what to know to read them.
        moved: by how much spans had to be cut to lie between the client's own times, at most; seconds.
        clock: offset of the server's clock and its uncertainty, seconds; None: both have the same clock.
    """

    kind: str
    asked: str
    answer: str
    total: float
    spans: Sequence[Span]
    pieces: Sequence[Piece] = ()
    sources: Sequence[str] = ()
    notes: Sequence[str] = ()
    moved: float = 0.0
    clock: tuple[float, float] | None = None
    facts: Sequence[tuple[str, str]] = field(default_factory=tuple)

    @property
    def first_text(self) -> float | None:
        """When the client had the first text; None: the answer does not stream."""
        return next((piece.received for piece in self.pieces if piece.text), None)
