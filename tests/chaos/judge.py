"""Judges what clients saw of a fault: one row of the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from tests.chaos.load import Outcome

# The goals, in seconds.
TOLD_S, RECOVERY_S, STOP_S = 1.0, 5.0, 3.0


@dataclass
class Row:
    """What a fault did.

    Attributes:
        saw: what clients were told, and how often.
        told_s: the longest that one of them waited to be told, from the fault or from its own begin.
        itl: the 99th percentile of gaps between deltas of texts, before the fault and during it, seconds.
        recovery_s: from the fault (or its end, where it was taken away) until all was answered again.
        lost: requests that were not answered, of all since the fault.
        stop_s: from SIGTERM, when nothing ran any more, to the end of the last process.
        missed: what falls short of the goals, a sentence each.
        limit: the known limit of which that comes.
    """

    fault: str
    saw: str = ""
    told_s: float | None = None
    itl: tuple[float, float] | None = None
    recovery_s: float | None = None
    lost: str = ""
    stop_s: float | None = None
    missed: list[str] = field(default_factory=list)
    limit: str = ""


def seen(outcomes: Iterable[Outcome]) -> str:
    """How often clients were told what, the most frequent first; the details of what was wrong or hung."""
    told = Counter(
        one.error.split(":")[0] if one.what == "told" else one.what for one in outcomes if one.what != "right"
    )
    return ", ".join(f"{count} {what}" for what, count in told.most_common()) or "nothing"


def lost(outcomes: Sequence[Outcome]) -> str:
    """Requests that were not answered by kind, of all."""
    kinds = Counter(one.kind for one in outcomes if one.what != "right")
    if not kinds:
        return f"none of {len(outcomes)}"
    parts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return f"{sum(kinds.values())} of {len(outcomes)}: {parts}"


def told_s(outcomes: Iterable[Outcome], at: float) -> float | None:
    """The longest wait to be told; None: nobody had to be."""
    waits = [one.ended - max(one.began, at) for one in outcomes if one.what == "told"]
    return max(waits, default=None)


def recovered(outcomes: Sequence[Outcome], kinds: Collection[str], at: float) -> float | None:
    """When every kind was answered that was asked after the last failure of it; None: not yet."""
    times = [at]
    for kind in kinds:
        own = [one for one in outcomes if one.kind == kind]
        failed = max((one.ended for one in own if one.what != "right"), default=None)
        after = [one.ended for one in own if one.what == "right" and one.began >= max(failed or at, at)]
        if not after:
            return None
        if failed is not None:
            times.append(min(after))
    return max(times)


def percentile(values: Sequence[float], share: float) -> float:
    """Of at least one value."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def missed(row: Row, outcomes: Sequence[Outcome], touched: Collection[str]) -> list[str]:
    """What falls short; `touched`: kinds of request that the fault may harm."""
    found = []
    for what in ("wrong", "hung"):
        bad = [one for one in outcomes if one.what == what]
        if bad:
            found.append(f"{len(bad)} {what}: {bad[0].kind}: {bad[0].error}")
    harmed = {one.kind for one in outcomes if one.what != "right"} - set(touched)
    if harmed:
        others = [one for one in outcomes if one.kind in harmed and one.what != "right"]
        found.append(f"{', '.join(sorted(harmed))} suffered too: {others[0].error[:160]}")
    if row.told_s is not None and row.told_s > TOLD_S:
        worst = max((one for one in outcomes if one.what == "told"), key=lambda one: one.ended - one.began)
        found.append(f"told after {row.told_s:.1f} s: {worst.kind}: {worst.error[:160]}")
    if row.recovery_s is None:
        found.append("not recovered")
    elif row.recovery_s > RECOVERY_S:
        found.append(f"recovered after {row.recovery_s:.1f} s")
    if row.stop_s is not None and row.stop_s > STOP_S:
        found.append(f"SIGTERM took {row.stop_s:.1f} s")
    return found
