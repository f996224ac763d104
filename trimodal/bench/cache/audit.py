"""Plays the audit on workloads whose truth is known and drifts: `python -m trimodal.bench.cache.audit`.

The cache's own code draws, estimates and moves the thresholds; models and engine are played: a pair has a
score, and its answers differ with a probability that depends on the score and on the time. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trimodal.cache.audit.auditor import AuditOptions, Auditor
from trimodal.cache.audit.budget import TokenBudget
from trimodal.cache.audit.metrics import AuditMetrics
from trimodal.cache.audit.promise import NEVER
from trimodal.cache.semantic.decision import Decision
from trimodal.cache.values import Entry, Place, Question
from trimodal.metrics import MemoryMetrics

FLOOR, MOST, SHARE = 0.9, 0.01, 0.02
"""Calibrated threshold, `cache_max_false_hit`, `cache_audit`."""
SHIFT, PASSES = 0.25, 0.6
"""When a shift comes and goes, as parts of a run."""
_LOOK_EVERY = 1000
_REQUEST_TOKENS = 88
_NOTHING_NEAR, _ABOVE_FLOOR = 0.2, 0.5
"""Parts of the requests."""
_PLACE = Place("0" * 16, "acme", "default", "0" * 64)
_STORED = Entry("stored", "yes", "stop", 1, 64, 0.0, 1e12)

Rate = Callable[[float, float], float]
"""Probability that the answers of a pair differ, by its score and the time from 0 to 1."""


def steady(score: float, time: float) -> float:
    """Half of the bound."""
    return 0.005 if score >= FLOOR else 0.6


def rising(score: float, time: float) -> float:
    """From 0 to 4 %, slowly."""
    return 0.04 * time if score >= FLOOR else 0.6


def unsure(score: float, time: float) -> float:
    """From the shift on 15 % below a score of 0.9875."""
    if score < FLOOR:
        return steady(score, time)
    return 0.15 if time >= SHIFT and score < 0.9875 else 0.002


def blind(score: float, time: float) -> float:
    """From the shift on 10 % at every score."""
    return 0.1 if time >= SHIFT and score >= FLOOR else steady(score, time)


def passing(score: float, time: float) -> float:
    """As blind, and later 0.2 % again."""
    return blind(score, time) if time < PASSES or score < FLOOR else 0.002


WORKLOADS: dict[str, Rate] = {
    "0.5 % at every score": steady,
    "0 to 4 %, slowly": rising,
    "0.2 %, then 15 % below 0.9875": unsure,
    "0.5 %, then 10 % at every score": blind,
    "0.5 %, then 10 %, then 0.2 %": passing,
}


@dataclass(frozen=True)
class Run:
    """What came of one seed.

    Attributes:
        looks, within: how often the bounds were looked at, and held the true rate of false hits; then those
            of missed hits.
        raised_before: whether the threshold was raised at a time when the true rate was within the bound.
        under_after: requests from the first time above the bound until hits were within it again, all that
            came where they were not; -1: never above it.
        wrong_after, hits_after: hits since then. wrong_without, hits_without: with the calibrated threshold.
        last_rate, last_share: in the last tenth, wrong ones among hits, and hits of those the floor gives.
        spent: tokens of audits, of those of clients.
    """

    looks: int
    within: int
    missed_looks: int
    missed_within: int
    raised_before: bool
    under_after: int
    wrong_after: int
    hits_after: int
    wrong_without: int
    hits_without: int
    last_rate: float
    last_share: float
    spent: float


@dataclass(frozen=True)
class _Trace:
    """Columns over the requests; of those without anything near the score is -1."""

    scores: NDArray[np.float64]
    rates: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    different: NDArray[np.bool_]

    @property
    def hits(self) -> NDArray[np.bool_]:
        return self.scores >= self.thresholds


def play(rate: Rate, requests: int, seed: int, share: float = SHARE) -> Run:
    """Runs one workload."""
    draw = random.Random(seed)

    def at_once(job: Callable[..., None], *args: object) -> bool:
        job(*args)
        return True

    auditor = Auditor(
        AuditOptions(share, MOST), FLOOR, AuditMetrics(MemoryMetrics(), "llm"),
        same=lambda pairs: [max(0.05, float(one == other)) for one, other in pairs],
        draw=draw.random, submit=at_once, clock=lambda: 0.0,
    )  # fmt: skip
    budget = TokenBudget(share)
    trace = _Trace(
        np.full(requests, -1.0), np.zeros(requests), np.full(requests, NEVER), np.zeros(requests, bool)
    )
    audited: tuple[list[int], list[int]] = ([], [])
    tally = np.zeros((2, 2), int)
    for at in range(requests):
        if draw.random() < _NOTHING_NEAR:
            budget.served(_REQUEST_TOKENS)
            continue
        score = _score(draw)
        differs = rate(score, at / requests)
        different = draw.random() < differs
        threshold = auditor.threshold(_PLACE)
        trace.scores[at], trace.rates[at], trace.thresholds[at] = score, differs, threshold
        trace.different[at] = different
        if _decide(auditor, budget, at, score, score >= threshold, "no" if different else "yes"):
            audited[score < threshold].append(at)
        if not at % _LOOK_EVERY:
            tally += _look(auditor, trace, audited, at)
    return _summary(trace, tally, budget)


def _score(draw: random.Random) -> float:
    """Of a request that has something near."""
    if draw.random() < _ABOVE_FLOOR / (1 - _NOTHING_NEAR):
        return 1 - math.pow(10, -draw.uniform(1, 4))
    return FLOOR * draw.random()


def _decide(auditor: Auditor, budget: TokenBudget, at: int, score: float, hit: bool, fresh: str) -> bool:
    """Answers a request as cache and engine do; whether it was audited."""
    question = Question(_PLACE, f"q{at}", 64)
    decision = Decision(_PLACE, question.text, _STORED.text, score, hit, _STORED)
    if hit:
        audit = auditor.hit(question, decision)
        if not (audit and budget.reserve(_REQUEST_TOKENS)):
            return False
        auditor.finish(audit, fresh, "stop")
        return True
    budget.served(_REQUEST_TOKENS)
    auditor.missed(question, decision)
    return auditor.answered(question, fresh, "stop")


def _look(
    auditor: Auditor, trace: _Trace, audited: tuple[list[int], list[int]], now: int
) -> NDArray[np.int_]:
    """Whether the bounds hold the truth: the mean rate of all hits, and misses, since their first sample."""
    status = auditor.status(_PLACE)
    counted = np.zeros((2, 2), int)
    for kind, bounds in enumerate((status.false_hits, status.missed_hits)):
        if not bounds.samples:
            continue
        sampled = audited[kind]
        if kind == 0:
            sampled = [at for at in sampled if trace.scores[at] >= status.threshold]
        span = slice(sampled[-bounds.samples], now + 1)
        scores, hits = trace.scores[span], trace.hits[span]
        chosen = hits & (scores >= status.threshold) if kind == 0 else (scores >= 0) & ~hits
        truth = float(np.mean(trace.rates[span][chosen]))
        truth = truth if kind == 0 else 1 - truth
        counted[kind] = 1, bounds.lower <= truth <= bounds.upper
    return counted


def _summary(trace: _Trace, tally: NDArray[np.int_], budget: TokenBudget) -> Run:
    requests = len(trace.scores)
    hits, possible = trace.hits, trace.scores >= FLOOR
    true = _true_rates(trace)
    above = np.flatnonzero(true > MOST)
    begin = int(above[0]) if len(above) else -1
    under = -1
    if begin >= 0:
        back = np.flatnonzero(true[begin:] <= MOST)
        under = int(back[0]) if len(back) else requests - begin
    raised = np.flatnonzero((trace.thresholds > FLOOR) & (trace.scores >= 0))
    after = np.zeros(requests, bool)
    after[max(begin, 0) if begin >= 0 else requests :] = True
    last = np.arange(requests) >= 0.9 * requests
    wrong = trace.different
    return Run(
        looks=int(tally[0, 0]),
        within=int(tally[0, 1]),
        missed_looks=int(tally[1, 0]),
        missed_within=int(tally[1, 1]),
        raised_before=bool(len(raised) and (begin < 0 or raised[0] < begin)),
        under_after=under,
        wrong_after=int(np.sum(wrong & hits & after)),
        hits_after=int(np.sum(hits & after)),
        wrong_without=int(np.sum(wrong & possible & after)),
        hits_without=int(np.sum(possible & after)),
        last_rate=_part(wrong & hits & last, hits & last),
        last_share=_part(hits & last, possible & last),
        spent=budget.audits / budget.clients,
    )


def _part(some: NDArray[np.bool_], of: NDArray[np.bool_]) -> float:
    """0 where there are none."""
    return int(np.sum(some)) / max(1, int(np.sum(of)))


def _true_rates(trace: _Trace, block: int = 500) -> NDArray[np.float64]:
    """The true rate of false hits around each request: of the hits of its block; 0 where there are none."""
    true = np.zeros(len(trace.scores))
    for start in range(0, len(true), block):
        span = slice(start, start + block)
        hits = trace.hits[span]
        true[span] = float(np.mean(trace.rates[span][hits])) if hits.any() else 0.0
    return true


def row(name: str, runs: Sequence[Run]) -> str:
    """A line of the Markdown table."""

    def within(looks: str, held: str) -> str:
        return f"{sum(getattr(r, held) for r in runs) / max(1, sum(getattr(r, looks) for r in runs)):.1%}"

    under = sorted(run.under_after for run in runs if run.under_after >= 0)
    when = f"{under[len(under) // 2]:,} / {under[int(0.95 * (len(under) - 1))]:,}" if under else ""
    after = ["", ""]
    if hits := sum(run.hits_after for run in runs):
        after[0] = f"{sum(run.wrong_after for run in runs) / hits:.2%}"
        after[1] = f"{sum(r.wrong_without for r in runs) / sum(r.hits_without for r in runs):.2%}"
    cells = (
        name, str(len(runs)), within("looks", "within"), within("missed_looks", "missed_within"),
        f"{sum(run.raised_before for run in runs)}", when, *after,
        f"{np.mean([run.last_rate for run in runs]):.2%}", f"{np.mean([run.last_share for run in runs]):.0%}",
        f"{max(run.spent for run in runs):.2%}",
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


HEAD = (
    "| different answers among pairs from the floor on | seeds | false hits within the bounds "
    "| missed hits within | raised without need | requests until under the bound again, p50 / p95 "
    "| wrong hits since it was first above | with the calibrated threshold | wrong hits at the end "
    "| hits kept at the end | engine spent, at most |"
)


def main() -> None:
    """Prints the table; every run on the way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--requests", type=int, default=120_000)
    parser.add_argument("--share", type=float, default=SHARE)
    names = tuple(WORKLOADS)
    parser.add_argument("--workloads", type=int, nargs="*", default=range(len(names)), help="0 is the first")
    parser.add_argument("--json", type=Path, help="also write all runs to this file")
    options = parser.parse_args()
    print(HEAD, "|" + "---|" * (HEAD.count("|") - 1), sep="\n")
    found = {}
    for name in (names[at] for at in options.workloads):
        runs = [play(WORKLOADS[name], options.requests, seed, options.share) for seed in range(options.seeds)]
        found[name] = [asdict(run) for run in runs]
        print(row(name, runs), flush=True)
    if options.json:
        options.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
