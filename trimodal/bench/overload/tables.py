"""Shows what the overload bench measured, as tables and sentences, and goodput over load as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console

from trimodal.bench.overload.figures import LevelFigures
from trimodal.errors import ServerError
from trimodal.llm.tiers import Tier
from trimodal.report.console import make_table

GOODPUT_KEPT = 0.9  # at the highest load, of the peak
REFUSED_WITHIN_MS = 50.0
_LAG_TOLD_MS = 20.0
_OTHERS_TOLD = 0.1
WHEN = ("before", "most", "after")

TIERS = "load|side|tier|sent|met|late|gap|refused|expired|lost|TTFT p50|p99"
GOODPUT = "load|side|offered/s|goodput/s|refused p50|p99|max|retry p50"
BEHIND = "load|side|answers|error p50|p90|bias|lag p99|max|MiB before|most|after"
_STYLES = {"deadline": {"color": "#1f77b4", "marker": "o"}, "fifo": {"color": "#d62728", "marker": "s"}}
# Where an unknown percentile is drawn, as a factor of the highest known one; a height for each side.
_NO_TEXT_AT = {"deadline": 1.15, "fifo": 1.6}


def print_tables(sides: Mapping[str, Sequence[LevelFigures]], console: Console) -> None:
    """All levels of all sides, side beside side, and what the columns mean."""
    rows = sorted(
        ((level, name) for name, levels in sides.items() for level in levels), key=lambda row: row[0].load
    )
    tiers, goodput, behind = (
        make_table(title, columns, box=box.SIMPLE_HEAD, padding=0, show_edge=False)
        for title, columns in (("By tier", TIERS), ("Goodput", GOODPUT), ("Behind it", BEHIND))
    )
    for level, name in rows:
        head = (f"{level.load:g}×", name)
        refused = level.refusals
        times = map(_ms, (refused.p50, refused.p99, refused.most, level.retry_after.p50))
        goodput.add_row(*head, f"{level.rate:.1f}", f"{level.goodput:.2f}", *times)
        for tier, one in level.tiers.items():
            *counts, p50, p99 = astuple(one)
            tiers.add_row(*head, tier, *map(str, counts), _ms(p50), _ms(p99))
        error, lag, memory = level.forecast_error, level.lag, level.memory
        times = map(_ms, (error.p50, error.p90, level.forecast_bias, lag.p99, lag.most))
        sizes = (f"{memory[when].total:.0f}" if when in memory else "" for when in WHEN)
        behind.add_row(*head, str(error.count), *times, *sizes)
    console.print(tiers)
    console.print(goodput)
    console.print(
        "met: first text and all gaps within the tier's bounds; late, gap: the one, the other not\n"
        "refused: at once; expired: let in, refused later without a text; lost: failed, or client gave up\n"
        "TTFT: ms from when a request was due, also of unanswered requests; refused: until the refusal"
    )
    console.print(behind)
    console.print(
        "error: |observed - foreseen| TTFT of the answers, ms; bias: median of observed - foreseen; "
        "lag: due to really sent; MiB: server and engine"
    )


def statements(
    sides: Mapping[str, Sequence[LevelFigures]], tiers: Mapping[str, Tier], *, judged: str = "deadline"
) -> list[str]:
    """Says which goals were met and which missed, a sentence each, and what makes figures doubtful."""
    told = []
    # At a very low load no request may have been due: that is no goodput to judge.
    levels = [level for level in sides.get(judged, ()) if level.sent]
    if len(levels) > 1:
        last, best = max(levels, key=lambda one: one.load), max(levels, key=lambda one: one.goodput)
        kept = last.goodput / best.goodput if best.goodput else 0.0
        told.append(
            f"{_met(kept >= GOODPUT_KEPT)}: goodput at {last.load:g}× is {last.goodput:.2f}/s, {kept:.2f} "
            f"of its peak of {best.goodput:.2f}/s at {best.load:g}× (goal: {GOODPUT_KEPT:g})"
        )
        told += _high_tier(last, tiers)
        error, memory = last.forecast_error, last.memory
        if error.count:
            off = f"off by {_ms(error.p50)} ms at p50, {_ms(error.p90)} ms at p90"
            told.append(f"TTFT foreseen at {last.load:g}×, {error.count} answers: {off}")
        if memory:
            shown = " → ".join(f"{memory[when].total:.0f}" for when in WHEN)
            told.append(f"memory of server and engine at {last.load:g}×, before → most → after: {shown} MiB")
    if slowest := max((level.refusals.most or 0.0 for level in levels), default=0.0):
        served = max(level.served_refusals.most or 0.0 for level in levels)
        told.append(
            f"{_met(slowest < REFUSED_WITHIN_MS)}: the slowest refusal came {slowest:.1f} ms after its "
            f"request was due, from its sending {served:.1f} ms at most (goal: below {REFUSED_WITHIN_MS:g})"
        )
    for name, some in sides.items():
        for level in some:
            told += _doubts(f"{name} at {level.load:g}×", level)
    return told


def _high_tier(level: LevelFigures, tiers: Mapping[str, Tier]) -> list[str]:
    name = max(level.tiers, key=lambda one: tiers[one].priority)
    figures = level.tiers[name]
    bound, p99 = tiers[name].ttft_deadline_ms, figures.ttft_p99
    if not bound:
        return []
    shown = "beyond all bounds" if p99 is None else f"{p99:.0f} ms"
    kept = p99 is not None and p99 <= bound
    let_in = figures.sent - figures.refused
    return [
        f"{_met(kept)}: p99 TTFT of tier {name} at {level.load:g}× is {shown} (bound: {bound} ms); "
        f"of {let_in} let in {figures.expired} expired in the queue and were told so"
    ]


def _doubts(where: str, level: LevelFigures) -> list[str]:
    told = []
    if level.unsent:
        told.append(
            f"{where}: {level.unsent} requests were not sent, as many were open as this client may have"
        )
    if level.lag.p99 is not None and level.lag.p99 > _LAG_TOLD_MS:
        told.append(
            f"{where}: this client could not keep the rate, 1 % of the requests went out more than "
            f"{level.lag.p99:.0f} ms late; its times hold that wait"
        )
    if level.others > _OTHERS_TOLD:
        told.append(f"{where}: other processes took {level.others:.0%} of this machine's CPU time")
    told += [f"{where}: {count} requests ended with {error}" for error, count in level.errors.items()]
    return told


def _met(kept: bool) -> str:
    return "met" if kept else "MISSED"


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.1f}"


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
    most = [min(1.0, load) * capacity for load in offered]
    goodput.plot(offered, most, ":", color="grey", label="offered, up to capacity")
    for name, levels in sides.items():
        style = _STYLES.get(name, {"color": None, "marker": "o"})
        shown = [level.load for level in levels], [level.goodput for level in levels]
        goodput.plot(*shown, label=name, **style)
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
