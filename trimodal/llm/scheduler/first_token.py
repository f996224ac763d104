"""Forecasts when a ticket's first text comes, from what runs, what waits and what higher priorities use."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Sequence

from trimodal.llm.scheduler.admission import Admission
from trimodal.llm.scheduler.estimators.answer_lengths import AnswerLengths
from trimodal.llm.scheduler.estimators.latency_model import LatencyModel
from trimodal.llm.scheduler.prefill_budget import PrefillBudget
from trimodal.llm.scheduler.queue_simulation import FirstText, QueueSimulation
from trimodal.llm.scheduler.ticket import Ticket
from trimodal.llm.scheduler.waiting_queue import Key

_SPAN_S = 30.0  # time constant of the decay of a priority's load
_STEPS = 256
_GOLDEN = (math.sqrt(5) - 1) / 2
_FEW = 96  # with up to so many tickets, the next few ends decide: the queue is simulated several times
_RUNS = 4
_KEPT_PREFIXES = 4096


class LoadShare:
    """Tells which share of the engine each priority used recently. Times are seconds of the owner's clock."""

    def __init__(self, now: float) -> None:
        self._began = now
        self._used: dict[int, tuple[float, float]] = {}

    def add(self, priority: int, share_seconds: float, now: float) -> None:
        """Adds what a request held of the engine; the whole engine for a second is 1."""
        self._used[priority] = (self._now(priority, now) + share_seconds, now)

    def stretched(self, wait: float, rank: float, ageing_s: float, now: float) -> float:
        """A wait, lengthened by what newcomers above `rank` take; each `ageing_s` raises the rank by one."""
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
        # At first the sums stand for less than a whole span.
        span = _SPAN_S * -math.expm1(-max(now - self._began, 1.0) / _SPAN_S)
        used = sum(self._now(priority, now) for priority in self._used if priority > rank)
        return min(1.0, used / span)

    def _now(self, priority: int, now: float) -> float:
        used, since = self._used.get(priority, (0.0, now))
        return used * math.exp((since - now) / _SPAN_S)


class PrefixHits:
    """Predicts prefix cache hits: a prompt gets as many as the last one with the same beginning."""

    def __init__(self) -> None:
        self._cached: OrderedDict[int, int] = OrderedDict()  # hash of a prefix → cached tokens

    def learn(self, prefix: int, cached_tokens: int) -> None:
        """Notes the hits of a prompt with this prefix; 0: its prefix is not known."""
        if not prefix:
            return
        self._cached[prefix] = cached_tokens
        self._cached.move_to_end(prefix)
        if len(self._cached) > _KEPT_PREFIXES:
            self._cached.popitem(last=False)

    def uncached(self, prefix: int, prompt_tokens: int) -> int:
        """Tokens of a prompt that the engine will have to compute, 1 at least."""
        return max(1, prompt_tokens - self._cached.get(prefix, 0))

    def clear(self) -> None:
        """Forgets all: the engine's prefix cache is empty."""
        self._cached.clear()


class FirstTokenForecast:
    """Combines the estimators; the prefill budget knows what the engine takes into a step."""

    def __init__(self, latency: LatencyModel, lengths: AnswerLengths, prefill_budget: PrefillBudget) -> None:
        self._latency = latency
        self._lengths = lengths
        self._prefill_budget = prefill_budget

    def left(self, ticket: Ticket, shift: float = 0.0) -> float:
        """Tokens still to come of a ticket's answer; nan: not known.

        Its rank among the lengths is fixed by its id (golden-ratio sequence): evenly spread over any run
        of ids, and the same each time, so that a forecast does not flicker. `shift` (0 to 1): another rank.
        """
        rank = (ticket.id * _GOLDEN + shift) % 1.0
        return self._lengths.left(ticket.tier_name, ticket.completion_tokens, ticket.max_tokens, rank)

    def first_text(
        self,
        lines: Sequence[Sequence[Key]],
        ticket: Ticket,
        running: Collection[Ticket],
        admission: Admission,
    ) -> FirstText | None:
        """What a ticket that comes now can expect; None: too little was seen to tell.

        Args:
            lines: those that wait before it, one list a tier, in order; the last of its own is itself.
            running: those in the engine.
        """
        latency = self._latency
        if not latency.ready:
            return None
        before = sum(map(len, lines)) - 1
        if not before and admission.fits(ticket) and self._prefill_budget.allows(ticket.uncached):
            return FirstText(0.0, latency.ttft(ticket.uncached))
        if not (self._lengths.ready and latency.decode_ready):
            return None
        runs = _RUNS if before + len(running) <= _FEW else 1
        wait = first = 0.0
        for number in range(runs):
            simulation = QueueSimulation(
                latency, admission, self._prefill_budget.limit(), self._prefill_budget.batch_tokens, self.left
            )
            for other in running:
                simulation.holds(other, self.left(other, number / runs))
            forecast = simulation.until(ticket, lines)
            if forecast is None:
                return None
            wait, first = wait + forecast.wait, first + forecast.first
        return FirstText(wait / runs, first / runs)
