"""Shows what a soak came to: a table of slopes, JSON, and one page with plots."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tests.soak.load import Kind
from tests.soak.run import Soak
from tests.soak.slopes import HOUR, LIMITS, Series, Verdict, judge, loads
from trimodal.bench.report.tables import number
from trimodal.report.plots import COLOURS, draw
from trimodal.report.values import Figure, Report, Section, Table

_COLUMNS = ("series", "kind", "first", "last", "slope/h", "95 % interval", "limit/h", "limit/24 h", "verdict")
_SPAN_MIB = 10.0  # what a plot shows at least: or the last page of a process looks like a leak


class Findings:
    """All series of a run with their verdicts, and what ended as it should not."""

    def __init__(self, soaked: Soak, kinds: Sequence[Kind]) -> None:
        self.soaked, self.kinds = soaked, kinds
        seen = soaked.series()
        self.series = [*seen, *loads(seen, soaked.seconds), *soaked.latencies(kinds)]
        self.verdicts = [judge(one, soaked.seconds) for one in self.series if one.kind in LIMITS]
        self.reloading, self.wrong = soaked.surprises(kinds)

    @property
    def faults(self) -> list[str]:
        """Everything that is not as it should be, a sentence each; none: the soak is passed."""
        found = [
            f"{one.kind} of {one.name}: {one.word}, up to {number(one.high)} an hour ({number(one.limit)})"
            for one in self.verdicts
            if one.word not in ("flat", "short")
        ]
        found += [f"{count} × {what}" for what, count in self.wrong.most_common()]
        found += [f"reload of {one.model}: {one.error}" for one in self.soaked.reloads if one.error]
        found += self.soaked.left_over()
        found += [f"{name} is {value:g} after the load" for name, value in self.soaked.not_idle.items()]
        return found + ([f"the load ended early: {self.soaked.stopped}"] if self.soaked.stopped else [])

    def plain(self) -> dict[str, Any]:
        """As JSON takes it."""
        soaked = self.soaked
        return {
            "seconds": soaked.seconds,
            "requests": {kind.name: self._ends(kind) for kind in self.kinds},
            "reloads": [asdict(one) for one in soaked.reloads],
            "during reloads": dict(self.reloading),
            "wrong": dict(self.wrong),
            "not idle": soaked.not_idle,
            "stopped": soaked.stopped,
            "faults": self.faults,
            "verdicts": [asdict(one) for one in self.verdicts],
            "series": [
                {"name": one.name, "kind": one.kind, "points": list(zip(one.times, one.values, strict=True))}
                for one in self.series
            ],
        }

    def table(self) -> Table:
        """A row for each series that has a limit; short ones are left out."""
        shown = [one for one in self.verdicts if one.word != "short"]
        order = {kind: index for index, kind in enumerate(LIMITS)}
        shown.sort(key=lambda one: order[one.kind])
        note = (
            f"Left out as too short: {len(self.verdicts) - len(shown)} series, mostly of replaced processes."
        )
        return Table("Slopes after the warm-up", _COLUMNS, [_row(one) for one in shown], note, names=2)

    def requests(self) -> Table:
        rows = [[kind.name, *_counts(self._ends(kind), kind)] for kind in self.kinds]
        return Table("Requests", ("kind", "sent", "as they should end", "otherwise"), rows)

    def meanwhile(self) -> Table:
        rows = [[what, str(count)] for what, count in self.reloading.most_common()]
        return Table("Refused while a model was reloaded", ("what the client saw", "requests"), rows)

    def report(self) -> Report:
        """The page."""
        soaked = self.soaked
        longest = max((one.ended - one.began for one in soaked.reloads), default=0.0)
        facts = [
            ("length", f"{soaked.seconds / 60:g} min, of which the first third is warm-up"),
            (
                "machine",
                f"{os.cpu_count()} processors, {platform.platform()}, Python {platform.python_version()}",
            ),
            ("reloads", f"{len(soaked.reloads)}, the longest {longest:.1f} s"),
        ]
        flat = sum(one.word == "flat" for one in self.verdicts)
        judged = sum(one.word != "short" for one in self.verdicts)
        tables = [self.table(), self.requests(), self.meanwhile()]
        sections = [
            Section("Verdict", tables=tables, warnings=self.faults),
            Section("Latency", _WINDOWS, figures=list(self._latency())),
            Section("Memory of each process", _LINES, figures=list(self._memory())),
            Section("Everything else", figures=list(self._rest())),
        ]
        return Report("Soak", f"{flat} of {judged} series are flat.", sections, facts)

    def _ends(self, kind: Kind) -> dict[str, int]:
        outcomes = [record.outcome for record in self.soaked.records[kind.name]]
        return {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))}

    def _latency(self) -> list[Figure]:
        names = dict.fromkeys(one.name for one in self.series if one.kind in ("p50", "p95", "p99"))
        return [
            self._figure(name, [(one, one.kind) for one in self.series if one.name == name], "ms")
            for name in names
        ]

    def _memory(self) -> list[Figure]:
        groups: dict[str, list[Series]] = {}
        for one in self.series:
            if one.kind == "memory" and "load by load" not in one.name:
                groups.setdefault(one.name.rpartition(" #")[0], []).append(one)
        found = [self._figure(name, [(one, "") for one in same], "MiB") for name, same in groups.items()]
        all_of = [one for one in self.series if one.kind == "pss"]
        return [self._figure("all processes (PSS)", [(one, "") for one in all_of], "MiB"), *found]

    def _rest(self) -> list[Figure]:
        found = []
        for kind, unit in (
            ("threads", ""),
            ("descriptors", ""),
            ("processor", "share"),
            ("KV blocks", "share"),
        ):
            same = [one for one in self.series if one.kind == kind and "load by load" not in one.name]
            longest = [one for one in same if one.times[-1] - one.times[0] > self.soaked.seconds / 3]
            wide = kind in ("threads", "descriptors")
            shown = [(one, one.name) for one in longest]
            found.append(self._figure(kind, shown, unit, wide=wide))
        shared = [one for one in self.series if one.kind == "shared memory"]
        return [*found, self._figure("/dev/shm", [(one, "") for one in shared], "MiB")]

    def _figure(
        self,
        title: str,
        shown: Sequence[tuple[Series, str]],
        unit: str,
        *,
        wide: bool = False,
    ) -> Figure:
        fitted = {(one.kind, one.name): one for one in self.verdicts if one.word != "short"}
        minutes = self.soaked.seconds / 60

        def paint(axes: Any) -> None:
            axes.axvspan(0, minutes / 3, color="#f0f2f5", lw=0)
            for one in self.soaked.reloads:
                axes.axvline(one.began / 60, color="#c9d0d8", lw=0.7, ls=":")
            for index, (one, label) in enumerate(shown):
                colour = COLOURS[index % len(COLOURS)] if label else COLOURS[0]
                at = [moment / 60 for moment in one.times]
                mark = "o" if len(at) <= 40 else ""
                axes.plot(at, one.values, color=colour, lw=1.1, marker=mark, ms=3, label=label or None)
                if (found := fitted.get((one.kind, one.name))) and one.kind != "processor":
                    _line(axes, found, one.times[-1])
            axes.set(xlabel="minutes", ylabel=unit, xlim=(0, minutes))
            low, high = axes.get_ylim()
            spare = max(0.0, _SPAN_MIB - high + low) / 2
            axes.set_ylim(*((low - spare, high + spare) if unit == "MiB" else (0.0, high)))
            if wide:
                axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
            elif any(label for _, label in shown):
                axes.legend()

        return draw(title, paint, wide=wide, width=11.5 if wide else 6.4)


_WINDOWS = (
    "Percentiles of twenty windows, each with one reload in its middle. Grey: the warm-up. Dotted: a "
    "model is unloaded and loaded. Dashed: the slope."
)
_LINES = "Resident memory. Where a line ends, the process was replaced by a reload."


def _line(axes: Any, found: Verdict, until: float) -> None:
    """The slope, through the middle of what it was fitted to."""
    middle, half = (found.first + found.last) / 2, found.slope * (until - found.began) / HOUR / 2
    axes.plot(
        [found.began / 60, until / 60], [middle - half, middle + half], color="#000000", lw=0.9, ls="--"
    )


def _row(one: Verdict) -> list[str]:
    mark = "✓" if one.word == "flat" else "✗"
    share = LIMITS[one.kind].relative
    limit = f"{100 * LIMITS[one.kind].per_hour:.0f} %" if share else f"{one.limit:g} {LIMITS[one.kind].unit}"
    middle = (one.first + one.last) / 2 or 1.0

    def told(slope: float) -> str:
        return f"{100 * slope / middle:+.1f} %" if share else f"{slope:+.2f}"

    a_day = "" if share else f"{24 * one.limit:g}"
    return [
        one.name, one.kind, number(one.first), number(one.last), told(one.slope),
        f"{told(one.low)} to {told(one.high)}", limit, a_day, f"{one.word} {mark}",
    ]  # fmt: skip


def _counts(ends: dict[str, int], kind: Kind) -> list[str]:
    right = sum(count for outcome, count in ends.items() if outcome in kind.ends)
    others = ", ".join(f"{count} {outcome}" for outcome, count in ends.items() if outcome not in kind.ends)
    return [str(sum(ends.values())), str(right), others or "-"]
