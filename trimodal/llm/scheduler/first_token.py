"""When a ticket's first text will come: foreseen from those in the engine and those before it.

The queue itself is played in play.py; what a forecast is used for is the scheduler's affair.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from trimodal.llm.scheduler.admission import Admission
from trimodal.llm.scheduler.estimators.answer_lengths import AnswerLengths
from trimodal.llm.scheduler.estimators.latency_model import LatencyModel
from trimodal.llm.scheduler.prefill_budget import PrefillBudget
from trimodal.llm.scheduler.queue_simulation import FirstText, QueueSimulation
from trimodal.llm.scheduler.ticket import Ticket
from trimodal.llm.scheduler.waiting_queue import Key

_SPAN_S = 30.0
_STEPS = 256


class LoadShare:
    """Decaying sums of share · seconds, by priority. Times are seconds of the owner's clock."""

    def __init__(self, now: float) -> None:
        self._began = now
        self._used: dict[int, tuple[float, float]] = {}

    def add(self, priority: int, share_seconds: float, now: float) -> None:
        """A request of a priority held so much of the engine (all of it for a second: 1)."""
        self._used[priority] = (self._now(priority, now) + share_seconds, now)

    def stretched(self, wait: float, rank: float, ageing_s: float, now: float) -> float:
        """A wait of class `rank` with what higher classes will take of it; the waiting one ages meanwhile."""
        passed = 0.0
        for step in range(_STEPS):
            free = 1 - self.above(rank + step, now)
            if free == 1 or wait <= free * ageing_s:
                return passed + wait / free
            wait -= free * ageing_s
            passed += ageing_s
        return passed + wait

    def above(self, rank: float, now: float) -> float:
        """The share, 0 to 1, that priorities above `rank` use."""
        # Not a whole span has passed at first: what there is stands for less time.
        span = _SPAN_S * -math.expm1(-max(now - self._began, 1.0) / _SPAN_S)
        used = sum(self._now(priority, now) for priority in self._used if priority > rank)
        return min(1.0, used / span)

    def _now(self, priority: int, now: float) -> float:
        used, since = self._used.get(priority, (0.0, now))
        return used * math.exp((since - now) / _SPAN_S)


_GOLDEN = (math.sqrt(5) - 1) / 2
_FEW = 96
"""Of up to so many, what the next few ends happen to be decides: the queue is played several times."""
_PLAYS = 4


class FirstTokenForecast:
    """Puts together what was learned. `batch_tokens`: prompt tokens that the engine takes into a step."""

    def __init__(
        self, speed: LatencyModel, lengths: AnswerLengths, pace: PrefillBudget, batch_tokens: int
    ) -> None:
        self._speed = speed
        self._lengths = lengths
        self._pace = pace
        self._batch_tokens = batch_tokens

    def left(self, ticket: Ticket, shift: float = 0.0) -> float:
        """Tokens still to come of a ticket's answer; nan: not known.

        Its rank among the lengths is fixed by its id (golden-ratio sequence): evenly spread over any run
        of ids, and the same each time, so that a forecast does not flicker. `shift` (0 to 1): another rank.
        """
        rank = (ticket.id * _GOLDEN + shift) % 1.0
        return self._lengths.left(ticket.tier_name, ticket.completion_tokens, ticket.max_tokens, rank)

    def first_text(
        self, lines: Sequence[Sequence[Key]], ticket: Ticket, running: Collection[Ticket], books: Admission
    ) -> FirstText | None:
        """What a ticket that comes now has to expect; None: too little was seen to tell.

        Args:
            lines: those who wait before it, one list a tier, in order; the last of its own is itself.
            running: those in the engine.
        """
        speed = self._speed
        if not speed.ready:
            return None
        before = sum(map(len, lines)) - 1
        if not before and books.fits(ticket) and self._pace.allows(ticket.uncached):
            return FirstText(0.0, speed.ttft(ticket.uncached))
        if not (self._lengths.ready and speed.decode_ready):
            return None
        plays = _PLAYS if before + len(running) <= _FEW else 1
        wait = first = 0.0
        for number in range(plays):
            play = QueueSimulation(speed, books, self._pace.limit(), self._batch_tokens, self.left)
            for other in running:
                play.holds(other, self.left(other, number / plays))
            foreseen = play.until(ticket, lines)
            if foreseen is None:
                return None
            wait, first = wait + foreseen.wait, first + foreseen.first
        return FirstText(wait / plays, first / plays)
