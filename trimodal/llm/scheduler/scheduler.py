"""Admits, orders and expires the tickets in front of one engine, on what it learns of that engine."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection
from itertools import islice

from trimodal.errors import Unavailable
from trimodal.llm.engines.protocol import EngineInfo
from trimodal.llm.scheduler.admission import Admission
from trimodal.llm.scheduler.deadlines import Deadlines
from trimodal.llm.scheduler.estimators.answer_lengths import AnswerLengths
from trimodal.llm.scheduler.estimators.latency_model import LatencyModel
from trimodal.llm.scheduler.first_token import FirstTokenForecast, LoadShare, PrefixHits
from trimodal.llm.scheduler.prefill_budget import PrefillBudget
from trimodal.llm.scheduler.ticket import Ticket
from trimodal.llm.scheduler.waiting_queue import WaitingQueue
from trimodal.llm.settings import LlmSettings

_LOOKED_AT = 32  # of those that wait, for one that fits: the look is after each step


class Scheduler:
    """Decides which ticket is refused, waits, runs next or leaves too late. Not thread-safe: its owner locks.

    With `scheduler` "fifo" tickets go in the order of coming; only a full queue refuses one. `clock` gives
    all times, in seconds.
    """

    def __init__(
        self, settings: LlmSettings, info: EngineInfo, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._fifo = settings.scheduler == "fifo"
        self.admission = Admission(settings, info)
        self._waiting = WaitingQueue(settings.ageing_s, self._fifo)
        self._running: dict[int, Ticket] = {}
        self._dropped: dict[int, Ticket] = {}
        self._stranded: list[Ticket] = []
        self._unserved: Counter[str] = Counter()
        self._longest = 0
        self._latency = LatencyModel()
        self._latency.shortest_first = info.shortest_first
        self._lengths = AnswerLengths()
        self._prefixes = PrefixHits()
        self._load = LoadShare(clock())
        bounded: Collection[Ticket] = () if self._fifo else self._running.values()
        self._prefill_budget = PrefillBudget(self._latency, bounded, self._step_tokens(info))
        self._forecast = FirstTokenForecast(self._latency, self._lengths, self._prefill_budget)
        self._deadlines = Deadlines(
            self._latency, self._load, settings.admission_confidence, settings.ageing_s
        )

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def unserved(self) -> Counter[str]:
        """Tickets that were not served, by reason.

        Refused on arrival, as the first text would have come too late ("deadline") or the queue was full
        ("queue"); taken out of the queue, as the first text could not be in time any more ("expired") or for
        a request of a higher class ("displaced").
        """
        return self._unserved.copy()

    def admit(self, ticket: Ticket) -> None:
        """Lets a ticket into the queue and predicts its TTFT (`ticket.predicted_ttft`).

        Raises:
            Unavailable: no room, or its first text would come after its deadline; says when to try again.
        """
        now = self._clock()
        ticket.blocks = self.admission.first_blocks(ticket)
        ticket.expires = ticket.ttft_deadline
        ticket.uncached = self._prefixes.uncached(ticket.prefix, ticket.prompt_tokens)
        self._waiting.age(now)
        rank = self._waiting.rank(ticket, now)
        ticket.expected_tokens = self._forecast.left(ticket)
        loser = self._loser(ticket, now)
        lines = self._waiting.before(ticket)
        forecast = self._forecast.first_text(lines, ticket, self._running.values(), self.admission)
        # First in, first out: no newcomer goes before it.
        self._deadlines.predict(ticket, forecast, math.inf if self._fifo else rank, now)
        if not self._fifo:
            try:
                self._deadlines.check(ticket, now)
            except Unavailable:
                self._unserved["deadline"] += 1
                raise
        if loser:
            self._drop(loser, now)
        self._longest = max(self._longest, ticket.uncached) if self._waiting else ticket.uncached
        self._waiting.add(ticket)

    def boost(self, ticket: Ticket, priority: int, ttft_deadline: float) -> None:
        """Gives a ticket for which another client waits too the higher priority and the earlier deadline.

        It expires on the later one: a client with more time must not lose the answer to one with less.
        """
        waiting = self._waiting.remove(ticket)
        ticket.priority = max(ticket.priority, priority)
        ticket.ttft_deadline, ticket.expires = (
            min(ticket.ttft_deadline, ttft_deadline),
            max(ticket.expires, ttft_deadline),
        )
        if waiting:
            self._waiting.add(ticket)

    def next(self) -> Ticket | None:
        """The ticket to be handed to the engine now, its slot and KV blocks reserved; None: not now.

        The first in order waits for its room. Smaller ones go before it for `ageing_s` and no longer, so they
        never starve it; none before one with a deadline or a higher priority. A tier that is short of its own
        share of the KV blocks is passed over.
        """
        now = self._clock()
        self._waiting.age(now)
        if not (self._waiting and self.admission.has_slot):
            return None
        room = self._prefill_budget.room()
        first: Ticket | None = None  # in order, for which there is no room
        short: set[str] = set()
        for ticket in islice(self._waiting.passing(short), _LOOKED_AT):
            if first and ticket.priority < first.priority:
                continue
            if not self.admission.in_share(ticket):
                short.add(ticket.tier_name)
                continue
            if ticket.uncached > room:
                return None
            if self.admission.reserve(ticket):
                self._start(ticket)
                return ticket
            if first is None:
                first = ticket
                ticket.held = ticket.held or now
                waited = now - ticket.held
                if self._fifo or ticket.ttft_deadline < math.inf or waited > self._settings.ageing_s:
                    return None
        return None

    def _start(self, ticket: Ticket) -> None:
        self._waiting.remove(ticket)
        self._waiting.charge(ticket, ticket.prompt_cost + ticket.answer_cost)
        ticket.started = self._clock()
        self._running[ticket.id] = ticket
        self._latency.started(ticket)
        self._deadlines.retry_after.handed_over(ticket.started)

    def overdue(self) -> list[Ticket]:
        """Takes those out of the queue that cannot have their first text in time any more, and those that
        had to make room; each says why (`problem`, `retry_after_s`)."""
        now = self._clock()
        if self._waiting and not self._fifo:
            for ticket in self._waiting.expiring(self._deadlines.soonest(self._longest, now)):
                soonest = now
                if self._running and not ticket.trial:  # else it goes at once: try it whatever the forecast
                    soonest = self._deadlines.soonest(ticket.uncached, now)
                if soonest > ticket.expires:
                    self._waiting.remove(ticket)
                    self._deadlines.missed(ticket, soonest, now)
                    self._unserved["expired"] += 1
                    self._dropped[ticket.id] = ticket
        dropped = list(self._dropped.values())
        self._dropped.clear()
        return dropped

    def stranded(self) -> list[Ticket]:
        """Takes those out of the queue that can never fit the reopened engine."""
        stranded, self._stranded = self._stranded, []
        return [ticket for ticket in stranded if self._waiting.remove(ticket)]

    def progress(self, ticket: Ticket, tokens: int, cached_tokens: int) -> None:
        """Counts the new tokens of a running ticket, and learns from them."""
        ticket.cached_tokens = cached_tokens
        if not tokens or ticket.id not in self._running:
            return
        ticket.completion_tokens += tokens
        self.admission.grow(ticket)
        now = self._clock()
        if ticket.first_token:
            self._latency.went_on(ticket, tokens, now)
            return
        ticket.first_token = now
        self._latency.first(ticket, now)
        self._prefixes.learn(ticket.prefix, cached_tokens)
        self._deadlines.answered(ticket, now)

    def finish(self, ticket: Ticket) -> None:
        """Ends a running ticket whose answer is complete: learns from it and frees what it held."""
        self._end(ticket, finished=True)

    def leave(self, ticket: Ticket) -> None:
        """Takes out a ticket that was cancelled or failed, wherever it is."""
        if not self._waiting.remove(ticket) and not self._dropped.pop(ticket.id, None):
            self._end(ticket, finished=False)

    def reopen(self, info: EngineInfo) -> None:
        """Takes a new engine for a lost one. Those that wait stay, and so does how fast it is."""
        self.admission = Admission(self._settings, info)
        self._latency.shortest_first = info.shortest_first
        self._prefill_budget.batch_tokens = self._step_tokens(info)  # chosen anew, by its own speed
        self._running.clear()
        self._latency.emptied()
        self.cache_emptied()
        for ticket in self._waiting:
            ticket.blocks = self.admission.first_blocks(ticket)
        self._stranded = [ticket for ticket in self._waiting if not self.admission.holds(ticket)]

    def cache_emptied(self) -> None:
        """Expects no more prefix cache hits than come from now on."""
        self._prefixes.clear()
        for ticket in self._waiting:
            ticket.uncached = ticket.prompt_tokens
            self._longest = max(self._longest, ticket.uncached)

    def _step_tokens(self, info: EngineInfo) -> int:
        return info.max_num_batched_tokens or self._settings.max_num_batched_tokens

    def _loser(self, ticket: Ticket, now: float) -> Ticket | None:
        """The ticket that has to leave the queue for one that comes now; None: there is room.

        Raises:
            Unavailable: the queue is full, and none in it goes after this one.
        """
        waiting, most = len(self._waiting), self._settings.max_queue
        if waiting < most:
            return None
        if not waiting and self.admission.fits(ticket) and self._prefill_budget.allows(ticket.uncached):
            return None
        if loser := self._waiting.loser(ticket, now):
            return loser
        self._unserved["queue"] += 1
        again_s = self._deadlines.retry_after.hint(ticket.priority, 0.0, now)
        raise Unavailable(f"{waiting} requests wait already: max_queue is {most}", again_s)

    def _drop(self, loser: Ticket, now: float) -> None:
        self._waiting.remove(loser)
        waited = (now - loser.arrived) * 1e3
        loser.problem = f"the queue is full, and a request that goes before it came after {waited:.0f} ms"
        loser.retry_after_s = self._deadlines.retry_after.hint(loser.priority, 0.0, now)
        self._unserved["displaced"] += 1
        self._dropped[loser.id] = loser

    def _end(self, ticket: Ticket, finished: bool) -> None:
        if not self._running.pop(ticket.id, None):
            return
        now = self._clock()
        self.admission.release(ticket)
        self._waiting.charge(ticket, ticket.completion_tokens - ticket.answer_cost)
        self._latency.gone(ticket)
        self._load.add(ticket.priority, self.admission.share(ticket) * (now - ticket.started), now)
        if ticket.first_token:
            self._lengths.learn(ticket.tier_name, ticket.completion_tokens, ticket.max_tokens, finished)
