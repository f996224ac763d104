"""Finds how much load a server holds: the most of which a run keeps the SLO."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace

from trimodal.tune.search import Round

LOWEST, HIGHEST = 1 / 8, 64.0  # times the mix
MOST_STREAMS = 4096
_TOLERANCE = 0.03  # between the load that is kept and the one that is not
_FIRST_STEP, _NEXT_STEP = 2.0, 1.2

Probe = Callable[[float], Awaitable[Round]]


async def find_edge(probe: Probe, guess: float | None = None) -> Round:
    """Bisects for the highest load that is kept; what `probe` found there.

    Where the lowest load is missed already, that one is returned.

    Args:
        guess: where the edge was the last time: the search begins there, in smaller steps.
    """
    step = _NEXT_STEP if guess else _FIRST_STEP
    factor, kept, missed = guess or 1.0, 0.0, math.inf
    best: Round | None = None
    while True:
        found = await probe(factor)
        if not found.violation:
            best, kept = found, factor
        elif factor <= LOWEST:
            return found
        else:
            missed = factor
        if best and (kept >= HIGHEST or missed <= kept * (1 + _TOLERANCE)):
            return best
        if best and missed < math.inf:
            factor = math.sqrt(kept * missed)
        else:
            factor = min(HIGHEST, kept * step) if best else max(LOWEST, missed / step)
            step = min(_FIRST_STEP, step * step)


async def find_most(probe: Probe, guess: float | None = None) -> Round:
    """Finds how many streams at once are kept where one more is not; what `probe` found of them.

    Where a single one is missed already, its round is returned, as of none.

    Args:
        guess: how many it were the last time: the search begins there.
    """
    number, step, kept, missed = int(guess or 1), 1, 0, MOST_STREAMS + 1
    best: Round | None = None
    while True:
        found = await probe(number)
        if found.violation:
            missed = number
        else:
            best, kept = found, number
        if missed - kept <= 1:
            return best or replace(found, gain=0.0)
        if kept and missed <= MOST_STREAMS:
            number = (kept + missed) // 2
        else:
            number = min(kept + step, MOST_STREAMS) if kept else max(missed - step, 1)
            step *= 2
