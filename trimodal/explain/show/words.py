"""Says in words what a waterfall shows: the terminal, the HTML report and JSON tell the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimodal.explain.parts import four_parts, overlapping, owners, parents
from trimodal.explain.values import TRITON, Part, Span, Waterfall
from trimodal.report.numbers import ms

MEANINGS: dict[Part, str] = {
    "network": "client to server",
    "queue": "waiting for its turn",
    "processing": "computing, and what leads to it",
    "response": "server to client",
}

# Deep inside others, and so short a share of the total: in no picture.
_DEEP, _SHORT = 3, 0.005


def labels(waterfall: Waterfall) -> list[str]:
    """Each span's name, with the model's in front where it is another one than the span's around it."""
    around = parents(waterfall.spans)
    found = []
    for one, parent in zip(waterfall.spans, around, strict=True):
        known = {one.name, "client", TRITON, waterfall.kind}
        if parent is not None and waterfall.spans[parent].place != TRITON:
            known = {one.name, waterfall.spans[parent].place}
        found.append(one.name if one.place in known else f"{one.place}: {one.name}")
    return found


def drawn(waterfall: Waterfall) -> list[int]:
    """Indexes of the spans that a picture shows: without those deep inside others that are very short."""
    return [
        index
        for index, one in enumerate(waterfall.spans)
        if one.depth < _DEEP or one.seconds >= _SHORT * waterfall.total
    ]


def label(one: Span) -> str:
    """A span's name where it stands alone."""
    return one.name if one.place in (one.name, "client", TRITON) else f"{one.place}: {one.name}"


def heading(waterfall: Waterfall) -> str:
    return f"{waterfall.kind}: {waterfall.asked} → {waterfall.answer}"


def times(waterfall: Waterfall) -> str:
    """How long it took, and what figures came with the answer."""
    first = waterfall.first_text
    found = [f"{ms(waterfall.total)} ms"]
    found += [f"first text after {ms(first)} ms"] if first is not None else []
    return " · ".join([*found, *(f"{name} {value}" for name, value in waterfall.facts)])


def on_the_way(waterfall: Waterfall) -> str:
    """How long the pieces of an answer needed from the engine to the client; "": not known."""
    took = sorted(piece.received - piece.made for piece in waterfall.pieces if piece.made is not None)
    if not took:
        return ""
    median, most = ms(took[len(took) // 2]), ms(took[-1])
    return f"From the engine to the client a piece took {median} ms (median), at most {most} ms."


def most_of_it(waterfall: Waterfall) -> str:
    """Names the span that the request waited longest for."""
    owned = owners(waterfall.spans, waterfall.total)
    most = max(range(len(owned)), key=owned.__getitem__)
    return f"Most of it: {label(waterfall.spans[most])}, {owned[most] / waterfall.total:.0%}."


def footnotes(waterfall: Waterfall) -> list[str]:
    """What to know to read the figures, a sentence each."""
    found = []
    if any(overlapping(waterfall.spans)):
        found.append("‖ runs beside another: each moment counts once, for what ends last.")
    if any(one.estimated for one in waterfall.spans):
        found.append("~ how long is measured, when is not: it is put in the middle of what it is in.")
    if waterfall.clock:
        offset, uncertainty = waterfall.clock
        found.append(
            f"The server's clock is {offset:+.3f} s from the client's, ± {ms(uncertainty)} ms: "
            "network and response are known to that."
        )
    found += [f"{note[0].upper()}{note[1:]}." for note in waterfall.notes]
    if hidden := len(waterfall.spans) - len(drawn(waterfall)):
        steps, them = ("1 step", "it") if hidden == 1 else (f"{hidden} steps", "them")
        found.append(f"Not drawn, as shorter than 0.5 %: {steps}; --json and --html list {them}.")
    return [*found, f"From {listed(waterfall.sources)}."]


def as_json(waterfall: Waterfall) -> dict[str, Any]:
    """All of it; times in milliseconds since the client sent the request."""
    owned = owners(waterfall.spans, waterfall.total)
    rows = zip(waterfall.spans, owned, overlapping(waterfall.spans), strict=True)
    return {
        "kind": waterfall.kind,
        "asked": waterfall.asked,
        "answer": waterfall.answer,
        "total_ms": _round(waterfall.total),
        "first_text_ms": None if waterfall.first_text is None else _round(waterfall.first_text),
        "parts_ms": {part: _round(seconds) for part, seconds in four_parts(waterfall).items()},
        "spans": [
            {
                "name": one.name,
                "place": one.place,
                "part": one.part,
                "depth": one.depth,
                "begin_ms": _round(one.begin),
                "end_ms": _round(one.end),
                "counted_ms": _round(seconds),
                "overlaps": overlaps,
                "estimated": one.estimated,
            }
            for one, seconds, overlaps in rows
        ],
        "pieces": [
            {
                "text": piece.text,
                "made_ms": None if piece.made is None else _round(piece.made),
                "received_ms": _round(piece.received),
            }
            for piece in waterfall.pieces
        ],
        "clock_offset_ms": None if waterfall.clock is None else _round(waterfall.clock[0]),
        "clock_uncertainty_ms": None if waterfall.clock is None else _round(waterfall.clock[1]),
        "moved_ms": _round(waterfall.moved),
        "sources": list(waterfall.sources),
        "notes": list(waterfall.notes),
        "facts": dict(waterfall.facts),
    }


def listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _round(seconds: float) -> float:
    return round(seconds * 1e3, 4)
