"""The one queue in front of an engine: who is let in, who is handed over next, who is too late.

It holds tickets, not requests: texts, clients and the engine itself are its owner's affair.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from trimodal.llm.admission import Admission
from trimodal.llm.engine import EngineInfo
from trimodal.llm.scheduler.ticket import Ticket
from trimodal.llm.settings import LlmSettings


class Scheduler:
    """Tickets that wait and tickets that run. Not thread-safe: its owner locks.

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
        self.admission = Admission(settings, info)
        self._waiting: deque[Ticket] = deque()
        self._running: dict[int, Ticket] = {}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def reserved_blocks(self) -> int:
        return self.admission.reserved_blocks

    def admit(self, ticket: Ticket) -> None:
        """Lets a ticket into the queue and foresees its TTFT (`ticket.predicted_ttft`).

        Raises:
            Unavailable: no room, or its first text would come after its deadline; says when to try again.
        """
        if self._waiting or not self.admission.fits(ticket.prompt_tokens, ticket.max_tokens):
            self.admission.check_queue(len(self._waiting))
        self._waiting.append(ticket)

    def hasten(self, ticket: Ticket, priority: int, ttft_deadline: float) -> None:
        """Somebody more urgent waits for the same answer: a ticket in the queue gets the stricter terms."""
        ticket.priority = max(ticket.priority, priority)
        ticket.ttft_deadline = min(ticket.ttft_deadline, ttft_deadline)

    def next(self) -> Ticket | None:
        """The ticket to be handed to the engine now, its slot and KV blocks reserved; None: not now."""
        if not self._waiting:
            return None
        ticket = self._waiting[0]
        if not self.admission.reserve(ticket.id, ticket.prompt_tokens, ticket.max_tokens):
            return None
        self._waiting.popleft()
        ticket.started = self._clock()
        self._running[ticket.id] = ticket
        return ticket

    def overdue(self) -> list[Ticket]:
        """Takes those out of the queue that cannot have their first text in time any more."""
        return []

    def stranded(self) -> list[Ticket]:
        """Takes those out of the queue that never fit an engine that was opened anew."""
        if self._running or not self._waiting:
            return []
        first = self._waiting[0]
        if self.admission.fits(first.prompt_tokens, first.max_tokens):
            return []
        return [self._waiting.popleft()]

    def progress(self, ticket: Ticket, tokens: int, cached_tokens: int) -> None:
        """A step made `tokens` new tokens of a running ticket."""
        ticket.cached_tokens = cached_tokens
        if tokens and not ticket.first_token:
            ticket.first_token = self._clock()
        ticket.completion_tokens += tokens

    def finish(self, ticket: Ticket) -> None:
        """A running ticket's answer is complete: what it needed is learned, what it held is free."""
        self.leave(ticket)

    def leave(self, ticket: Ticket) -> None:
        """A ticket is cancelled or failed, wherever it is."""
        if self._running.pop(ticket.id, None):
            self.admission.release(ticket.id)
        elif ticket in self._waiting:
            self._waiting.remove(ticket)

    def reopen(self, info: EngineInfo) -> None:
        """The engine was lost and opened anew: those that wait stay; the owner has failed the others."""
        self.admission = Admission(self._settings, info)
        self._running.clear()
