"""Draws figures with matplotlib as SVG elements that stand in an HTML page."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from trimodal.errors import SettingsError
from trimodal.report.values import Figure

# Told apart also by people who see no red or green (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_NUMBERS = itertools.count()
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small, and searched by the browser
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a94a1",
    "axes.labelcolor": "#3a4452",
    "xtick.color": "#5b6675",
    "ytick.color": "#5b6675",
    "axes.grid": True,
    "grid.color": "#e4e8ed",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8,
}


def check_plots(option: str) -> None:
    """Raises: SettingsError now, not after an hour of measuring: the plotting library is not installed."""
    if find_spec("matplotlib") is None:
        raise SettingsError(f"{option} needs matplotlib: pip install 'trimodal[bench]'")


def draw(
    title: str,
    paint: Callable[[Any], None],
    *,
    caption: str = "",
    width: float = 6.4,
    height: float = 3.6,
) -> Figure:
    """A figure whose one pair of axes `paint` draws into; sizes in inches."""
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": title}):
        canvas = Canvas(figsize=(width, height), layout="constrained")
        paint(canvas.subplots())
        file = io.StringIO()
        canvas.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return Figure(title, _element(file.getvalue()), caption)


def _element(svg: str) -> str:
    """The `<svg>` element alone, with ids of its own: all figures of a page share one name space."""
    element = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    prefix = f"f{next(_NUMBERS)}-"
    element = re.sub(r'\bid="', f'id="{prefix}', element)
    element = re.sub(r'(href="|url\()#', rf"\g<1>#{prefix}", element)
    return element.strip()


def cdf(title: str, series: Mapping[str, Sequence[float]]) -> Figure:
    """Share of all values that are at most so many ms, a line for each series that has some."""
    import numpy as np

    def paint(axes: Any) -> None:
        for colour, (name, values) in zip(itertools.cycle(COLOURS), series.items(), strict=False):
            if len(values):
                ordered = np.sort(np.asarray(values, float))
                chosen = np.unique(np.linspace(0, len(ordered) - 1, 400).astype(int))
                share = (chosen + 1) / len(ordered)
                axes.step(ordered[chosen], 100 * share, where="post", label=name, color=colour, lw=1.4)
        for percent in (50, 90, 99):
            axes.axhline(percent, color="#b6bec8", lw=0.6, ls=":")
        axes.set(xlabel="ms", ylabel="% at most", ylim=(0, 101))
        axes.set_yticks([0, 25, 50, 75, 90, 99])
        positive = [value for values in series.values() for value in values if value > 0]
        if positive and max(positive) / min(positive) > 30:
            axes.set_xscale("log")
        axes.legend(loc="lower right")

    return draw(title, paint)


def lines(
    title: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    x: str,
    y: str,
    labels: Mapping[str, Sequence[str]] | None = None,
    caption: str = "",
) -> Figure:
    """Points joined by lines, one line for each series; `labels`: a word at each point.

    Series whose names differ only in their last word have one colour, and dashes from the second one on.
    """
    groups = [name.rpartition(" ")[0] or name for name in series]
    colours = dict(zip(dict.fromkeys(groups), itertools.cycle(COLOURS), strict=False))

    def paint(axes: Any) -> None:
        for index, (name, points) in enumerate(series.items()):
            colour, first = colours[groups[index]], groups[index] not in groups[:index]
            if points:
                style = {"color": colour, "ls": "-" if first else "--", "label": name}
                axes.plot(*zip(*points, strict=True), marker="o", ms=4, lw=1.3, **style)
            for point, label in zip(points, (labels or {}).get(name, ()), strict=False):
                axes.annotate(
                    label, point, textcoords="offset points", xytext=(4, 5), fontsize=7.5, color=colour
                )
        axes.set(xlabel=x, ylabel=y)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.margins(x=0.08, y=0.12)
        axes.legend()

    return draw(title, paint, caption=caption)
