"""Defines a waterfall: spans of one request's time, pieces of its answer, and four parts that add up.

Each moment counts once, for what the request was waiting for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

Part = Literal["network", "queue", "processing", "response"]
TRITON = "Triton"
PARTS: tuple[Part, ...] = get_args(Part)
_SLACK = 2e-4
"""Seconds: in Triton a step is told to begin a little before the one before it is told to be over."""


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
    facts: Sequence[tuple[str, str]] = field(default_factory=tuple)

    @property
    def first_text(self) -> float | None:
        """When the client had the first text; None: the answer does not stream."""
        return next((piece.received for piece in self.pieces if piece.text), None)


def owners(spans: Sequence[Span], total: float) -> list[float]:
    """Seconds for which each span was what the request waited for; together at most `total`.

    Of the spans at a moment it is the deepest. Of several next to each other it is in the branch that ends
    last: the request would not have been done earlier without the others.
    """
    around = parents(spans)
    paths = [_path(index, around) for index in range(len(spans))]
    edges = sorted({0.0, total, *(min(max(at, 0.0), total) for one in spans for at in (one.begin, one.end))})
    owned = [0.0] * len(spans)
    for begin, end in zip(edges, edges[1:], strict=False):
        at = (begin + end) / 2
        covering = [index for index, one in enumerate(spans) if one.begin <= at < one.end]
        if covering:
            owned[max(covering, key=lambda index: [spans[step].end for step in paths[index]])] += end - begin
    return owned


def overlapping(spans: Sequence[Span]) -> list[bool]:
    """Whether each span runs at the same time as another one that stands in the same span as it."""
    around = parents(spans)

    def beside(one: int, other: int) -> bool:
        a, b = spans[one], spans[other]
        siblings = one != other and around[one] == around[other]
        return siblings and min(a.end, b.end) - max(a.begin, b.begin) > _SLACK

    return [any(beside(one, other) for other in range(len(spans))) for one in range(len(spans))]


def four_parts(waterfall: Waterfall) -> dict[Part, float]:
    """Seconds of network, queue, processing and response, each moment counted once."""
    found = dict.fromkeys(PARTS, 0.0)
    for one, owned in zip(waterfall.spans, owners(waterfall.spans, waterfall.total), strict=True):
        found[one.part] += owned
    return found


def parents(spans: Sequence[Span]) -> list[int | None]:
    """Index of the span that each span stands in; None: in none."""
    found: list[int | None] = []
    open_: list[int] = []
    for index, one in enumerate(spans):
        while open_ and spans[open_[-1]].depth >= one.depth:
            open_.pop()
        found.append(open_[-1] if open_ else None)
        open_.append(index)
    return found


def _path(index: int, around: Sequence[int | None]) -> list[int]:
    """Indexes of a span and those around it, the outermost first."""
    path = [index]
    while (parent := around[path[0]]) is not None:
        path.insert(0, parent)
    return path
