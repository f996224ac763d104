"""Shows what a soak came to: a table of slopes, and JSON with every series and how all requests ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tests.soak.load import Kind
from tests.soak.run import Soak
from tests.soak.slopes import LIMITS, Verdict, judge, loads
from trimodal.bench.report import number
from trimodal.report.console import Table

_COLUMNS = ("series", "kind", "first", "last", "slope/h", "95 % interval", "limit/h", "verdict")


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

    def _ends(self, kind: Kind) -> dict[str, int]:
        outcomes = [record.outcome for record in self.soaked.records[kind.name]]
        return {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))}


def _row(one: Verdict) -> list[str]:
    mark = "✓" if one.word == "flat" else "✗"
    share = LIMITS[one.kind].relative
    limit = f"{100 * LIMITS[one.kind].per_hour:.0f} %" if share else f"{one.limit:g} {LIMITS[one.kind].unit}"
    middle = (one.first + one.last) / 2 or 1.0

    def told(slope: float) -> str:
        return f"{100 * slope / middle:+.1f} %" if share else f"{slope:+.2f}"

    return [
        one.name, one.kind, number(one.first), number(one.last), told(one.slope),
        f"{told(one.low)} to {told(one.high)}", limit, f"{one.word} {mark}",
    ]  # fmt: skip
