"""Draws a waterfall in the terminal, 80 columns wide."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from trimodal.explain.parts import four_parts, overlapping
from trimodal.explain.show import words
from trimodal.explain.values import Part, Span, Waterfall
from trimodal.report.numbers import ms

WIDTH = 80
COLOURS: dict[Part, str] = {
    "network": "bright_blue",
    "queue": "yellow",
    "processing": "green",
    "response": "magenta",
}
_LABEL, _BAR, _FIGURE = 36, 33, 8
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def show(waterfall: Waterfall, console: Console) -> None:
    """Prints the request, a row a span, and the four parts."""
    console.print(Text(words.heading(waterfall), "bold"), soft_wrap=True)
    console.print(Text(words.times(waterfall)), soft_wrap=True)
    console.print()
    names, beside = words.labels(waterfall), overlapping(waterfall.spans)
    for at in words.drawn(waterfall):
        row = _row(waterfall.spans[at], names[at], waterfall.total, overlaps=beside[at])
        console.print(row, no_wrap=True, overflow="crop")
    if waterfall.pieces:
        console.print(_pieces(waterfall), no_wrap=True)
    console.print(_axis(waterfall.total), no_wrap=True)
    console.print()
    _sums(waterfall, console)
    console.print()
    for note in words.footnotes(waterfall):
        console.print(Text(note, "dim"), width=WIDTH)


def _row(one: Span, name: str, total: float, *, overlaps: bool) -> Text:
    mark = "~" if one.estimated else "‖" if overlaps else " "
    name = f"{'  ' * one.depth}{name}"
    name = name if len(name) <= _LABEL - 2 else f"{name[: _LABEL - 3]}…"
    text = Text(f"{name:<{_LABEL - 2}}{mark} ")
    text.append(_bar(one, total), COLOURS[one.part])
    return text.append(f"{ms(one.seconds):>{_FIGURE}} ms")


def _bar(one: Span, total: float) -> str:
    """Blocks from its begin to its end; at least a thin one."""
    begin, end = (at / total * _BAR if total else 0.0 for at in (one.begin, one.end))
    cells = []
    for cell in range(_BAR):
        filled = max(0.0, min(end, cell + 1) - max(begin, cell))
        right = (
            filled and begin > cell and end >= cell + 1
        )  # of a cell's right side there is but a half block
        cells.append(("▐" if filled > 0.25 else "▕") if right else _EIGHTHS[round(filled * 8)])
    if not "".join(cells).strip():
        cells[min(_BAR - 1, int(begin))] = "▏"
    return "".join(cells)


def _axis(total: float) -> Text:
    end = f"{ms(total)} ms"
    return Text(f"{'':<{_LABEL}}0{end:>{_BAR - 1}}", "dim")


def _pieces(waterfall: Waterfall) -> Text:
    """A tick for each piece of the answer, where the client got it."""
    ticks = [" "] * _BAR
    for piece in waterfall.pieces:
        ticks[min(_BAR - 1, int(piece.received / waterfall.total * _BAR))] = "·" if not piece.text else "╵"
    count = f"{len(waterfall.pieces)} pieces reach the client"
    return Text(f"{count:<{_LABEL}}{''.join(ticks)}")


def _sums(waterfall: Waterfall, console: Console) -> None:
    parts = four_parts(waterfall)
    for part, seconds in parts.items():
        line = Text(f"{part:<12}", COLOURS[part])
        line.append(f"{ms(seconds):>10} ms {seconds / waterfall.total:>6.1%}  ", "default")
        console.print(line.append(words.MEANINGS[part], "dim"))
    console.print(Text(f"{'total':<12}{ms(sum(parts.values())):>10} ms", "bold"))
    console.print(words.most_of_it(waterfall))
    if way := words.on_the_way(waterfall):
        console.print(way)
