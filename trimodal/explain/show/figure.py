"""Draws a waterfall as a section of an HTML report."""

from __future__ import annotations

from typing import Any

from trimodal.explain.parts import four_parts, overlapping, owners
from trimodal.explain.show import words
from trimodal.explain.values import PARTS, Part, Waterfall
from trimodal.report.numbers import ms
from trimodal.report.plots import draw
from trimodal.report.values import Figure, Report, Section, Table

# Told apart also by people who see no red or green (Okabe and Ito).
COLOURS: dict[Part, str] = {
    "network": "#56b4e9",
    "queue": "#e69f00",
    "processing": "#009e73",
    "response": "#cc79a7",
}
_ROW = 0.205  # inches
_INK, _SOFT = "#1c2430", "#5b6675"


def report(waterfall: Waterfall) -> Report:
    """A page of this waterfall alone."""
    return Report(
        f"Where the time of one {waterfall.kind} request went",
        f"{words.times(waterfall)}. {words.most_of_it(waterfall)} {words.on_the_way(waterfall)}",
        sections(waterfall),
        [("asked", waterfall.asked), ("answered", waterfall.answer)],
    )


def sections(waterfall: Waterfall) -> list[Section]:
    """The figure; the four parts; all spans."""
    return [
        Section("Waterfall", figures=[figure(waterfall)]),
        Section("The four parts", tables=[_parts(waterfall)]),
        Section("All spans", "\n\n".join(words.footnotes(waterfall)), [_spans(waterfall)]),
    ]


def figure(waterfall: Waterfall) -> Figure:
    """A bar for each span, over time, and a tick for each piece of the answer."""
    shown = words.drawn(waterfall)
    spans, total = [waterfall.spans[at] for at in shown], waterfall.total * 1e3
    scale, unit = (1e3, "s") if total >= 10_000 else (1.0, "ms")
    end = total / scale
    holds = [after.depth > one.depth for one, after in zip(spans, spans[1:], strict=False)] + [False]
    lane = bool(waterfall.pieces)

    def paint(axes: Any) -> None:
        for row, one in enumerate(spans):
            begin, width = one.begin * 1e3 / scale, max(one.seconds * 1e3 / scale, end * 0.002)
            hatched = one.estimated and width > end * 0.01
            style = {"hatch": "////", "edgecolor": "white", "linewidth": 0} if hatched else {}
            axes.barh(
                row,
                width,
                left=begin,
                height=0.34 if holds[row] else 0.72,
                color=COLOURS[one.part],
                alpha=0.45 if holds[row] else 1.0,
                **style,
            )
            axes.text(begin + width + end * 0.006, row, ms(one.seconds), va="center", fontsize=7, color=_SOFT)
        if lane:
            at = [piece.received * 1e3 / scale for piece in waterfall.pieces]
            axes.vlines(at, len(spans) - 0.34, len(spans) + 0.34, color=_SOFT, linewidth=0.8)
        names = _labels(waterfall)
        labels = [names[at] for at in shown]
        labels += [f"{len(waterfall.pieces)} pieces reach the client"] if lane else []
        axes.set_yticks(range(len(labels)), labels, fontsize=8)
        for text, one in zip(axes.get_yticklabels(), spans, strict=False):
            text.set_color(_INK if one.depth < 2 else _SOFT)
        # Left-aligned, so that what stands in what can be seen; 4.6 points a letter, at 8 points.
        axes.tick_params(axis="y", length=0, pad=4.6 * max(map(len, labels)))
        for text in axes.get_yticklabels():
            text.set_ha("left")
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.set_xlim(0, end * 1.09)
        axes.set_xlabel(f"{unit} since the client sent the request")
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        for part in PARTS:
            axes.bar(0, 0, color=COLOURS[part], label=f"{part}: {words.MEANINGS[part]}")
        axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=4, fontsize=8, handlelength=1.0)

    rows = len(spans) + lane
    return draw(
        "Where the time went", paint, caption=_caption(waterfall), width=11.0, height=1.0 + rows * _ROW
    )


def _labels(waterfall: Waterfall) -> list[str]:
    found = []
    beside = overlapping(waterfall.spans)
    for one, name, overlaps in zip(waterfall.spans, words.labels(waterfall), beside, strict=True):
        mark = " ~" if one.estimated else " ‖" if overlaps else ""
        # Spaces at a text's begin are dropped in SVG; these are not.
        found.append("\u00a0" * 4 * one.depth + name + mark)
    return found


def _caption(waterfall: Waterfall) -> str:
    caption = "Milliseconds behind the bars. A thin bar is the whole of what is indented below it."
    if any(one.estimated for one in waterfall.spans):
        caption += " Hatched: how long is measured, when is not."
    return caption


def _parts(waterfall: Waterfall) -> Table:
    parts = four_parts(waterfall)
    rows: list[tuple[str, ...]] = [
        (part, ms(seconds), f"{seconds / waterfall.total:.1%}", words.MEANINGS[part])
        for part, seconds in parts.items()
    ]
    rows.append(("total", ms(sum(parts.values())), "100.0%", "the client sends, to all is there"))
    return Table("Each moment counts once", ("part", "ms", "share", "what it is"), rows)


def _spans(waterfall: Waterfall) -> Table:
    owned = owners(waterfall.spans, waterfall.total)
    rows = [
        (
            name,
            ms(one.begin),
            ms(one.end),
            ms(one.seconds),
            ms(seconds),
            one.part,
        )
        for one, name, seconds in zip(waterfall.spans, _labels(waterfall), owned, strict=True)
    ]
    note = "counted: what the request waited for this alone; these add up to the total."
    return Table(
        "ms since the client sent the request",
        ("span", "begin", "end", "length", "counted", "part"),
        rows,
        note,
    )
