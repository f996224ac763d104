"""Shows simulated fleets: a table of their figures, and panels that a page and a picture share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimodal.report.plots import COLOURS, draw, save
from trimodal.report.values import Report, Section, Table

if TYPE_CHECKING:
    from trimodal.plan.fleet.tally import Outcome

COLUMNS = (
    "plan",
    "good",
    "goodput /s",
    "TTFT p50 (ms)",
    "p95",
    "p99",
    "ITL p95",
    "p99",
    "e2e p95 (s)",
    "prefix hits",
    "slots",
    "replicas",
    "refused",
    "lost",
    "cost",
    "a million tokens",
)
Panel = tuple[str, Callable[[Any], None], float]
"""Title, what paints it, height in inches."""


def row(one: Outcome) -> list[str]:
    """A plan's figures as `COLUMNS` names them."""

    def ms(values: dict[str, float], name: str, places: int = 0, by: float = 1.0) -> str:
        return f"{values[name] / by:.{places}f}" if name in values else "-"

    return [
        one.name,
        f"{one.attainment:.1%}",
        f"{one.goodput:.1f}",
        *(ms(one.ttft_ms, name) for name in ("p50", "p95", "p99")),
        *(ms(one.itl_ms, name, 1) for name in ("p95", "p99")),
        ms(one.latency_ms, "p95", 1, 1e3),
        f"{one.hit_rate:.1%}",
        f"{one.utilisation:.0%}",
        f"{one.most_replicas}",
        f"{one.refused}",
        f"{one.lost}",
        f"{one.cost:.2f}" if one.cost_per_million is not None else "-",
        f"{one.cost_per_million:.3f}" if one.cost_per_million is not None else "-",
    ]


def fleet_report(outcomes: Sequence[Outcome], facts: Sequence[tuple[str, str]]) -> Report:
    """The page: table and panels."""
    best = max(outcomes, key=lambda one: one.attainment)
    figures = [draw(title, paint, height=height) for title, paint, height in panels(outcomes)]
    table = Table("Plans", COLUMNS, [row(one) for one in outcomes])
    headline = f"Most good requests: {best.attainment:.1%} with {best.name}."
    return Report("Simulated fleet", headline, [Section("Plans", "", [table], figures)], facts)


def save_fleet(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Writes the panels, side by side, as a PNG. Raises: SettingsError: it cannot be written."""
    save(path, [(title, paint) for title, paint, _ in panels(outcomes)])


def panels(outcomes: Sequence[Outcome]) -> list[Panel]:
    """What the plans are compared by.

    Plans whose names differ only in a number at the end are one line over their replicas; where there is no
    such line, each plan has bars and a place of its own.
    """
    series: dict[str, list[Outcome]] = {}
    for one in outcomes:
        series.setdefault(_without_number(one.name), []).append(one)
    shown: list[Panel]
    if max(map(len, series.values())) == 1:
        height = max(2.8, 0.5 * len(outcomes) + 1)
        shown = [
            ("Replicas over time", lambda axes: _over_time(axes, outcomes), 3.6),
            ("Time to first token", lambda axes: _bars(axes, outcomes), height),
        ]
        if any(one.cost for one in outcomes):
            shown.append(("What good requests cost", lambda axes: _costs(axes, outcomes), height))
        return shown

    def good(axes: Any) -> None:
        _lines(axes, series, lambda one: 100 * one.attainment)
        axes.set(ylabel="good requests, %", ylim=(0, 102))

    def late(axes: Any) -> None:
        from matplotlib.ticker import LogLocator, NullFormatter

        _lines(axes, series, lambda one: one.ttft_ms.get("p95"))
        axes.set(ylabel="TTFT p95, ms", yscale="log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.yaxis.set_minor_formatter(NullFormatter())

    def dear(axes: Any) -> None:
        _lines(axes, series, lambda one: one.cost_per_million)
        axes.set(ylabel="cost of a million output tokens", ylim=(0, None))

    shown = [("Good requests", good, 3.6), ("Time to first token", late, 3.6)]
    return [*shown, ("Cost", dear, 3.6)] if any(one.cost for one in outcomes) else shown


def _without_number(name: str) -> str:
    rest, _, last = name.rpartition(" ")
    return rest if rest and last.replace(",", "").isdigit() else name


def _lines(axes: Any, series: dict[str, list[Outcome]], value: Callable[[Outcome], float | None]) -> None:
    for index, (name, plans) in enumerate(series.items()):
        points = [
            (3600 * one.replica_hours / one.seconds, shown)
            for one in sorted(plans, key=lambda one: one.replica_hours)
            if (shown := value(one)) is not None
        ]
        if points:
            colour = COLOURS[index % len(COLOURS)]
            axes.plot(*zip(*points, strict=True), marker="o", ms=4, lw=1.3, color=colour, label=name)
    axes.set(xlabel="replicas that are paid for, in the mean")
    axes.legend()


def _over_time(axes: Any, outcomes: Sequence[Outcome]) -> None:
    for index, one in enumerate(outcomes):
        at, ready, _ = zip(*one.replicas, (one.seconds, *one.replicas[-1][1:]), strict=True)
        shown = [(when, count) for when, count in zip(at, ready, strict=True) if when <= one.seconds]
        axes.step(
            *zip(*shown, strict=True), where="post", label=one.name, color=COLOURS[index % len(COLOURS)]
        )
    axes.set(xlabel="seconds", ylabel="replicas that serve", xlim=(0, None), ylim=(0, None))
    axes.legend()


def _bars(axes: Any, outcomes: Sequence[Outcome]) -> None:
    for place, (name, colour) in enumerate(zip(("p50", "p95", "p99"), COLOURS, strict=False)):
        rows = [index + 0.25 * place for index in range(len(outcomes))]
        axes.barh(rows, [one.ttft_ms.get(name, 0.0) for one in outcomes], 0.22, color=colour, label=name)
    axes.set(xlabel="TTFT, ms", ylim=(len(outcomes), -0.5))
    axes.set_yticks([index + 0.25 for index in range(len(outcomes))], [one.name for one in outcomes])
    axes.legend()


def _costs(axes: Any, outcomes: Sequence[Outcome]) -> None:
    for index, one in enumerate(outcomes):
        colour = COLOURS[index % len(COLOURS)]
        axes.plot([3600 * one.cost / one.seconds], [100 * one.attainment], "o", color=colour, label=one.name)
    axes.set(xlabel="cost an hour", ylabel="good requests, %", xlim=(0, None), ylim=(0, 102))
    axes.legend(loc="lower left")
