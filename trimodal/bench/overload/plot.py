"""Draws the overload bench: goodput over offered load, one line a side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trimodal.bench.overload.figures import LevelFigures
from trimodal.errors import ServerError

_COLOURS = {"deadline": "#1f77b4", "fifo": "#d62728"}
_MARKS = {"deadline": "o", "fifo": "s"}
# Where an unknown percentile is drawn, as a factor of the highest known one; a height for each side.
_NO_TEXT_AT = {"deadline": 1.15, "fifo": 1.6}


def draw(
    sides: Mapping[str, Sequence[LevelFigures]], path: Path, *, capacity: float, tier: str, bound_ms: int
) -> None:
    """A PNG with two panels: all goodput, and the p99 TTFT of one tier beside its bound.

    Args:
        sides: name → its levels, by load.
        capacity: requests a second.
        tier: of the second panel.

    Raises:
        ServerError: the file cannot be written.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (goodput, ttft) = pyplot.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    loads = sorted({level.load for levels in sides.values() for level in levels})
    offered = sorted({*loads, 1.0} if loads and loads[0] < 1.0 < loads[-1] else loads)
    goodput.plot(
        offered,
        [min(1.0, load) * capacity for load in offered],
        ":",
        color="grey",
        label="offered, up to capacity",
    )
    for name, levels in sides.items():
        style: dict[str, Any] = {"color": _COLOURS.get(name), "marker": _MARKS.get(name, "o")}
        goodput.plot(
            [level.load for level in levels], [level.goodput for level in levels], label=name, **style
        )
        _draw_ttft(ttft, name, levels, tier, style)
    goodput.set(title="Requests that met TTFT and ITL bounds", ylabel="goodput, requests/s")
    goodput.set_ylim(bottom=0)
    if bound_ms:
        ttft.axhline(bound_ms, color="grey", linestyle=":", label="bound")
    ttft.set(title=f"p99 TTFT of tier {tier}", ylabel="ms", yscale="log")
    for axes in (goodput, ttft):
        axes.set(xlabel="offered load, times capacity", xscale="log")
        axes.set_xticks(loads, [f"{load:g}×" for load in loads])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend()
    try:
        figure.savefig(path, dpi=130, format="png")
    except OSError as error:
        raise ServerError(f"--plot {path}: cannot be written: {error.strerror}") from None
    finally:
        pyplot.close(figure)


def _draw_ttft(
    axes: Any, name: str, levels: Sequence[LevelFigures], tier: str, style: Mapping[str, Any]
) -> None:
    """A line through the levels that have the figure; a cross on top where 1 % got no text at all."""
    told = {level.load: level.tiers[tier].ttft_p99 for level in levels if tier in level.tiers}
    known = {load: value for load, value in told.items() if value is not None}
    axes.plot(list(known), list(known.values()), label=name, **style)
    if missing := [load for load in told if load not in known]:
        top = [_NO_TEXT_AT.get(name, 1.3) * max([*known.values(), 1000.0])] * len(missing)
        axes.plot(missing, top, "x", color=style["color"], label=f"{name}: 1 % or more got no text")
