"""Admits, orders and expires the tickets in front of one engine."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable

from trimodal.errors import Unavailable
from trimodal.llm.engines.protocol import EngineInfo
from trimodal.llm.scheduler.admission import Admission
from trimodal.llm.scheduler.predictor import Predictor
from trimodal.llm.scheduler.stats import SchedulerStats
from trimodal.llm.scheduler.ticket import Ticket
from trimodal.llm.scheduler.waiting_queue import WaitingQueue
from trimodal.llm.settings import LlmSettings


class Scheduler:
    """Tickets that wait and tickets that run. Not thread-safe: its owner locks.

    With `scheduler` "fifo" tickets go in the order of coming; only a full queue refuses one.

    Args:
        settings: the model's parameters.
        info: what the engine can hold.
        clock: seconds, as `Ticket`'s times; another one is for tests.
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
        self._counts: Counter[str] = Counter()
        self._longest = 0
        self._predictor = Predictor(settings, clock)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def reserved_blocks(self) -> int:
        return self.admission.reserved_blocks

    @property
    def advice(self) -> str:
        """A setting that would keep the tiers' ITL bounds; empty: they hold, or too little is known."""
        return self._predictor.advice

    def stats(self) -> SchedulerStats:
        """The figures as of now."""
        return self._predictor.stats(self._counts)

    def admit(self, ticket: Ticket) -> None:
        """Lets a ticket into the queue and predicts its TTFT (`ticket.predicted_ttft`).

        Raises:
            Unavailable: no room, or its first text would come after its deadline; says when to try again.
        """
        now = self._clock()
        ticket.blocks = self.admission.blocks(ticket.prompt_tokens, ticket.max_tokens)
        ticket.expires = ticket.ttft_deadline
        ticket.uncached = self._predictor.uncached(ticket)
        self._waiting.age(now)
        rank = self._waiting.rank(ticket, now)
        loser = self._loser(ticket, rank, now)
        lines = self._waiting.before(ticket)
        try:
            # First in, first out: no newcomer goes before it.
            above = math.inf if self._fifo else rank
            self._predictor.check_deadline(ticket, above, lines, self._running.values(), self.admission)
        except Unavailable:
            self._counts["refused_deadline"] += 1
            raise
        if loser:
            self._drop(loser, now)
        self._longest = max(self._longest, ticket.uncached) if self._waiting else ticket.uncached
        self._waiting.add(ticket)

    def hasten(self, ticket: Ticket, priority: int, ttft_deadline: float) -> None:
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

        The first in order waits for its room and none overtakes it there, so small requests never
        starve a big one. Only a tier that is short of its own share of the KV blocks is passed over.
        """
        self._waiting.age(self._clock())
        for ticket in self._waiting.heads():
            if not self.admission.in_share(ticket):
                continue
            if not (self._predictor.may_prefill(ticket) and self.admission.reserve(ticket)):
                return None
            self._waiting.remove(ticket)
            ticket.started = self._clock()
            self._running[ticket.id] = ticket
            self._predictor.handed_over(ticket)
            return ticket
        return None

    def overdue(self) -> list[Ticket]:
        """Takes those out of the queue that cannot have their first text in time any more, and those that
        had to make room; each says why (`problem`, `retry_after_s`)."""
        now = self._clock()
        if not self._fifo:
            for ticket in self._waiting.expiring(self._predictor.soonest(self._longest)):
                soonest = now
                if self._running and not ticket.trial:  # else it goes at once: try it whatever the forecast
                    soonest = self._predictor.soonest(ticket.uncached)
                if soonest > ticket.expires:
                    self._waiting.remove(ticket)
                    self._predictor.missed(ticket, soonest)
                    self._counts["expired"] += 1
                    self._dropped[ticket.id] = ticket
        dropped = list(self._dropped.values())
        self._dropped.clear()
        return dropped

    def stranded(self) -> list[Ticket]:
        """Takes those out of the queue that can never fit the reopened engine."""
        if self._running:
            return []
        stranded = [ticket for ticket in self._waiting if not self.admission.fits(ticket)]
        for ticket in stranded:
            self._waiting.remove(ticket)
        return stranded

    def progress(self, ticket: Ticket, tokens: int, cached_tokens: int) -> None:
        """Counts the new tokens of a running ticket."""
        ticket.cached_tokens = cached_tokens
        if tokens and ticket.id in self._running:
            ticket.completion_tokens += tokens
            self._predictor.progressed(ticket, tokens)

    def finish(self, ticket: Ticket) -> None:
        """Ends a running ticket whose answer is complete: learns from it and frees what it held."""
        self._end(ticket, finished=True)

    def leave(self, ticket: Ticket) -> None:
        """Takes out a ticket that was cancelled or failed, wherever it is."""
        if not self._waiting.remove(ticket) and not self._dropped.pop(ticket.id, None):
            self._end(ticket, finished=False)

    def reopen(self, info: EngineInfo) -> None:
        """Takes a new engine for a lost one. Those that wait stay; the owner has failed the others."""
        self.admission = Admission(self._settings, info)
        self._running.clear()
        self._predictor.emptied()
        for ticket in self._waiting:
            ticket.blocks = self.admission.blocks(ticket.prompt_tokens, ticket.max_tokens)
            ticket.uncached = ticket.prompt_tokens

    def _loser(self, ticket: Ticket, rank: float, now: float) -> Ticket | None:
        """The ticket that has to leave the queue for one that comes now; None: there is room.

        Raises:
            Unavailable: the queue is full, and none in it has a lower rank.
        """
        if not self._waiting and self.admission.fits(ticket) and self._predictor.may_prefill(ticket):
            return None
        try:
            self.admission.check_queue(len(self._waiting))
        except Unavailable as full:
            last = self._waiting.last()
            if last and self._waiting.rank(last, now) < rank:
                return last
            self._counts["refused_queue"] += 1
            raise Unavailable(str(full), self._predictor.again_s(ticket)) from None
        return None

    def _drop(self, loser: Ticket, now: float) -> None:
        self._waiting.remove(loser)
        waited = (now - loser.arrived) * 1e3
        loser.problem = f"the queue is full, and a request of higher priority came after {waited:.0f} ms"
        loser.retry_after_s = self._predictor.again_s(loser)
        self._counts["displaced"] += 1
        self._dropped[loser.id] = loser

    def _end(self, ticket: Ticket, finished: bool) -> None:
        if self._running.pop(ticket.id, None):
            self.admission.release(ticket)
            self._predictor.ended(ticket, finished, self.admission.share(ticket))
