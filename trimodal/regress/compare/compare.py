"""Compares two runs of a golden set: everything that changed, and whether anything is worse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimodal.regress.compare.answers import (
    compare_answers,
    compare_cache,
    compare_expectations,
    compare_prompt,
    shown,
)
from trimodal.regress.compare.findings import VERDICTS, Finding, Limits
from trimodal.regress.compare.latencies import MIN_SAMPLES, Latency, compare_latencies, findings, too_few
from trimodal.regress.compare.significance import mann_whitney
from trimodal.regress.golden.cases import Case
from trimodal.regress.golden.schema import Expectation
from trimodal.regress.run.identity import differences
from trimodal.regress.values import RecordedRun


@dataclass(frozen=True)
class Comparison:
    """Differences of two runs.

    Attributes:
        knobs: what the servers differ in, a text each.
        findings: worse ones first.
        latencies: all that were compared, groups first.
        compared: cases that both runs have.
        doubt: why times are no measure of the server; "" when they are.
        repeat_needed: counted requests a case that it takes to see one case's times change; 0: enough.
    """

    knobs: list[str]
    findings: list[Finding]
    latencies: list[Latency]
    compared: int
    doubt: str
    repeat_needed: int

    @property
    def worse(self) -> bool:
        """Whether anything is."""
        return any(one.verdict == "worse" for one in self.findings)

    @property
    def doubtful(self) -> bool:
        """Whether there are times that may be worse, and cannot be judged."""
        return any(one.verdict == "doubtful" for one in self.findings)


def compare(cases: Sequence[Case], before: RecordedRun, after: RecordedRun, limits: Limits) -> Comparison:
    """Finds the differences of all cases of a golden set.

    Args:
        before: the baseline. after: the run of `cases` to judge.
    """
    alpha = limits.alpha / max(1, len(cases))  # of tests that each case has one of (Bonferroni)
    found: list[Finding] = []
    both: list[str] = []
    for case in cases:
        old, new = before.cases.get(case.id), after.cases[case.id]
        if old and old.digest == new.digest:
            both.append(case.id)
            found += compare_expectations(case.id, case.expect, old, new, alpha)
            expected = case.expect != Expectation()
            found += compare_answers(case.id, old, new, limits, expected=expected)
            found += compare_prompt(case.id, old, new)
            found += compare_cache(case.id, old, new, alpha)
        else:
            told = ("recorded otherwise", "changed since") if old else ("not recorded", "new")
            found.append(Finding(case.id, "case", "changed", *told, "not compared: record again"))
            found += compare_expectations(case.id, case.expect, None, new, alpha)
    for name in before.cases.keys() - after.cases.keys():
        found.append(Finding(name, "case", "changed", "recorded", "gone"))
    latencies = compare_latencies(
        {name: before.cases[name] for name in both}, {name: after.cases[name] for name in both}, limits
    )
    doubt = _doubt(before, after, limits)
    times = findings(latencies)
    if doubt:
        times = [replace(one, verdict="doubtful" if one.verdict == "worse" else "changed") for one in times]
    found += times
    found.sort(key=lambda one: (VERDICTS.index(one.verdict), one.case))
    knobs, repeat_needed = differences(before.server, after.server), too_few(latencies, limits.alpha)
    return Comparison(knobs, found, latencies, len(both), doubt, repeat_needed)


def _doubt(before: RecordedRun, after: RecordedRun, limits: Limits) -> str:
    """Why the times of the two runs cannot be compared; "" when they can."""
    if before.concurrency != after.concurrency:
        return f"{before.concurrency} requests at once were recorded, {after.concurrency} are sent now"
    old, new = before.control, after.control
    if min(len(old), len(new)) < MIN_SAMPLES or mann_whitney(old, new) >= limits.alpha:
        return ""
    ratio = float(np.mean(new) / np.mean(old))  # the mean: a busy machine shows in the slow ones
    # Half of what is tolerated: the rest is the server's.
    if 1 / (1 + limits.latency / 2) <= ratio <= 1 + limits.latency / 2:
        return ""
    return f"work without any model took {ratio:.2f} times as long as when it was recorded"


def check(cases: Sequence[Case], run: RecordedRun) -> list[Finding]:
    """Finds the broken expectations of a run that is recorded."""
    return [
        finding
        for case in cases
        for finding in compare_expectations(case.id, case.expect, None, run.cases[case.id], 1.0)
    ]


def refusals(run: RecordedRun) -> list[str]:
    """Lists the cases whose last request was refused: they are recorded as answers, perhaps by mistake."""
    last = {name: record.responses[-1] for name, record in run.cases.items()}
    return [f"{name}: {shown(answer)}" for name, answer in last.items() if answer.error]
