"""Shows a waterfall: in the terminal, 80 columns wide, and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from trimodal.explain.values import TRITON, Part, Span, Waterfall, four_parts, overlapping, owners, parents
from trimodal.report.numbers import ms

# Colour, meaning.
PARTS: dict[Part, tuple[str, str]] = {
    "network": ("bright_blue", "client to server"),
    "queue": ("yellow", "waiting for its turn"),
    "processing": ("green", "computing, and what leads to it"),
    "response": ("magenta", "server to client"),
}
WIDTH = 80
_LABEL, _BAR, _FIGURE = 36, 33, 8
_EIGHTHS = " ▏▎▍▌▋▊▉█"
# Deep inside others, and so short a share of the total: not drawn.
_DEEP, _SHORT = 3, 0.005


def show(waterfall: Waterfall, console: Console) -> None:
    """Prints the request, a row a span, and the four parts."""
    head = f"{waterfall.kind}: {waterfall.asked} → {waterfall.answer}"
    console.print(Text(head, "bold"), soft_wrap=True)
    console.print(Text(_times(waterfall)), soft_wrap=True)
    console.print()
    names, beside = _labels(waterfall), overlapping(waterfall.spans)
    hidden = 0
    for one, name, overlaps in zip(waterfall.spans, names, beside, strict=True):
        if one.depth >= _DEEP and one.seconds < _SHORT * waterfall.total:
            hidden += 1
        else:
            row = _row(one, name, waterfall.total, overlaps=overlaps)
            console.print(row, no_wrap=True, overflow="crop")
    if waterfall.pieces:
        console.print(_pieces(waterfall), no_wrap=True)
    end = f"{ms(waterfall.total)} ms"
    console.print(Text(f"{'':<{_LABEL}}0{end:>{_BAR - 1}}", "dim"), no_wrap=True)
    console.print()
    _sums(waterfall, console)
    console.print()
    for note in _footnotes(waterfall, hidden, overlaps=any(beside)):
        console.print(Text(note, "dim"), width=WIDTH)


def as_json(waterfall: Waterfall) -> dict[str, Any]:
    """All of it; times in milliseconds since the client sent the request."""
    counted = owners(waterfall.spans, waterfall.total)
    spans = [
        {**_in_ms(asdict(one), "begin", "end"), "counted_ms": _ms(seconds), "overlaps": overlaps}
        for one, seconds, overlaps in zip(waterfall.spans, counted, overlapping(waterfall.spans), strict=True)
    ]
    return {
        "kind": waterfall.kind,
        "asked": waterfall.asked,
        "answer": waterfall.answer,
        "total_ms": _ms(waterfall.total),
        "first_text_ms": _ms(waterfall.first_text),
        "parts_ms": {part: _ms(seconds) for part, seconds in four_parts(waterfall).items()},
        "spans": spans,
        "pieces": [_in_ms(asdict(piece), "received", "made") for piece in waterfall.pieces],
        "moved_ms": _ms(waterfall.moved),
        "sources": list(waterfall.sources),
        "notes": list(waterfall.notes),
        "facts": dict(waterfall.facts),
    }


def _in_ms(values: dict[str, Any], *names: str) -> dict[str, Any]:
    """`values`, of which those of `names` are seconds."""
    return {
        (f"{name}_ms" if name in names else name): (_ms(value) if name in names else value)
        for name, value in values.items()
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 4)


def _times(waterfall: Waterfall) -> str:
    """How long it took, and what figures came with the answer."""
    first = waterfall.first_text
    found = [f"{ms(waterfall.total)} ms"]
    found += [f"first text after {ms(first)} ms"] if first is not None else []
    return " · ".join([*found, *(f"{name} {value}" for name, value in waterfall.facts)])


def _labels(waterfall: Waterfall) -> list[str]:
    """Each span's name, with the model's in front where it is another one than the span's around it."""
    found = []
    for one, parent in zip(waterfall.spans, parents(waterfall.spans), strict=True):
        known = {one.name, "client", TRITON, waterfall.kind}
        if parent is not None and waterfall.spans[parent].place != TRITON:
            known = {one.name, waterfall.spans[parent].place}
        found.append(one.name if one.place in known else f"{one.place}: {one.name}")
    return found


def _row(one: Span, name: str, total: float, *, overlaps: bool) -> Text:
    name = f"{'  ' * one.depth}{name}"
    name = name if len(name) <= _LABEL - 2 else f"{name[: _LABEL - 3]}…"
    text = Text(f"{name:<{_LABEL - 2}}{'‖' if overlaps else ' '} ")
    text.append(_bar(one, total), PARTS[one.part][0])
    return text.append(f"{ms(one.seconds):>{_FIGURE}} ms")


def _bar(one: Span, total: float) -> str:
    """Blocks from its begin to its end; at least a thin one."""
    begin, end = (at / total * _BAR if total else 0.0 for at in (one.begin, one.end))
    cells = []
    for cell in range(_BAR):
        filled = max(0.0, min(end, cell + 1) - max(begin, cell))
        # Of a cell's right side there is but a half block.
        right = filled and begin > cell and end >= cell + 1
        cells.append(("▐" if filled > 0.25 else "▕") if right else _EIGHTHS[round(filled * 8)])
    if not "".join(cells).strip():
        cells[min(_BAR - 1, int(begin))] = "▏"
    return "".join(cells)


def _pieces(waterfall: Waterfall) -> Text:
    """A tick for each piece of the answer, where the client got it."""
    ticks = [" "] * _BAR
    for piece in waterfall.pieces:
        ticks[min(_BAR - 1, int(piece.received / waterfall.total * _BAR))] = "·" if not piece.text else "╵"
    count = f"{len(waterfall.pieces)} pieces reach the client"
    return Text(f"{count:<{_LABEL}}{''.join(ticks)}")


def _sums(waterfall: Waterfall, console: Console) -> None:
    for part, seconds in four_parts(waterfall).items():
        colour, meaning = PARTS[part]
        line = Text(f"{part:<12}", colour)
        line.append(f"{ms(seconds):>10} ms {seconds / waterfall.total:>6.1%}  ", "default")
        console.print(line.append(meaning, "dim"))
    console.print(Text(f"{'total':<12}{ms(waterfall.total):>10} ms", "bold"))


def _footnotes(waterfall: Waterfall, hidden: int, *, overlaps: bool) -> list[str]:
    """What to know to read the figures, a sentence each."""
    found = []
    if overlaps:
        found.append("‖ runs beside another: each moment counts once, for what ends last.")
    found += [f"{note[0].upper()}{note[1:]}." for note in waterfall.notes]
    if hidden:
        found.append(f"Not drawn, as shorter than 0.5 %: {hidden} of the steps that --json lists.")
    return [*found, f"From {', '.join(waterfall.sources)}."]
