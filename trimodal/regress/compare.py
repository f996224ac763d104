"""Compares two runs of a golden set: everything that changed, and whether anything is worse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimodal.regress.answers import compare_answers, compare_cache, compare_expectations, shown
from trimodal.regress.cases import Case
from trimodal.regress.identity import differences
from trimodal.regress.latencies import ALPHA, Latency, compare_latencies, findings, too_few
from trimodal.regress.schema import Expectation
from trimodal.regress.values import VERDICTS, Finding, RecordedRun


@dataclass(frozen=True)
class Comparison:
    """Differences of two runs.

    Attributes:
        knobs: what the servers differ in, a text each.
        findings: worse ones first.
        latencies: all that were compared, groups first.
        compared: cases that both runs have.
        note: why no change of a time could be found; empty: one could.
    """

    knobs: list[str]
    findings: list[Finding]
    latencies: list[Latency]
    compared: int
    note: str = ""

    @property
    def worse(self) -> bool:
        """Whether anything is."""
        return any(one.verdict == "worse" for one in self.findings)


def compare(
    cases: Sequence[Case],
    before: RecordedRun,
    after: RecordedRun,
    latency_tolerance: float = 0.2,
    min_overlap: float = 1.0,
) -> Comparison:
    """Finds the differences of all cases of a golden set.

    Args:
        before: the baseline. after: the run of `cases` to judge.
        latency_tolerance: share by which a time may grow; 0.2 lets 12 ms become 14.4.
        min_overlap: least `overlap` of a new answer with a recorded one; 1: every change is worse.
    """
    alpha = ALPHA / max(1, len(cases))  # of tests that each case has one of (Bonferroni)
    found: list[Finding] = []
    both: list[str] = []
    for case in cases:
        old, new = before.cases.get(case.id), after.cases[case.id]
        if old and old.digest == new.digest:
            both.append(case.id)
            found += compare_expectations(case.id, case.expect, old, new, alpha)
            expected = case.expect != Expectation()
            found += compare_answers(case.id, old, new, min_overlap, alpha, expected=expected)
            found += compare_cache(case.id, old, new)
        else:
            states = ("recorded otherwise", "changed since") if old else ("not recorded", "new")
            found.append(Finding(case.id, "case", "changed", *states, "not compared: record again"))
            found += compare_expectations(case.id, case.expect, None, new, alpha)
    for name in before.cases.keys() - after.cases.keys():
        found.append(Finding(name, "case", "changed", "recorded", "gone"))
    latencies = compare_latencies(
        {name: before.cases[name] for name in both},
        {name: after.cases[name] for name in both},
        latency_tolerance,
    )
    found += findings(latencies)
    found.sort(key=lambda one: (VERDICTS.index(one.verdict), one.case))
    knobs = differences(before.server, after.server)
    counted = [len(run.cases[name].observations) - 1 for run in (before, after) for name in both]
    note = too_few(latencies, min(counted)) if both else ""
    return Comparison(knobs, found, latencies, len(both), note)


def check(cases: Sequence[Case], run: RecordedRun) -> list[Finding]:
    """Finds the broken expectations of a run that is recorded."""
    return [
        finding
        for case in cases
        for finding in compare_expectations(case.id, case.expect, None, run.cases[case.id], 1.0)
    ]


def refusals(run: RecordedRun) -> list[str]:
    """Lists the cases whose last request was refused: they are recorded as answers, perhaps by mistake."""
    last = {name: record.observations[-1].answer for name, record in run.cases.items()}
    return [f"{name}: {shown(answer)}" for name, answer in last.items() if answer.error]
