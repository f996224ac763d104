"""Orders the tickets that wait: by priority, which rises with waiting, then by deadline, then by arrival.

Tickets are kept in one sorted list a tier, so that a tier that is short of its share of KV blocks is passed
over as a whole.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Iterator

from trimodal.llm.scheduler.ticket import Ticket

Key = tuple[float, float, float, int, Ticket]

# Raised priorities are sorted in so often in each `ageing_s`: once a rise of each ticket would cost n² of n.
SORTS = 20


class WaitingQueue:
    """Sorts the tickets that wait. Times are seconds of the owner's clock, absolute.

    Args:
        ageing_s: each so long a wait raises a ticket by one priority, as of the last `age`. Priority has no
            upper end, so whoever waits goes before all newcomers at last. Within a priority the earliest
            deadline goes first.
        fifo: only the order of coming counts, which is that of the ids.
    """

    def __init__(self, ageing_s: float, fifo: bool = False) -> None:
        self._ageing_s = ageing_s
        self._fifo = fifo
        self._aged = 0.0
        self._keys: dict[int, Key] = {}
        self._lines: dict[str, list[Key]] = {}
        self._expiries: list[tuple[float, int, Ticket]] = []

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Ticket]:
        return (key[-1] for key in heapq.merge(*self._lines.values()))

    def age(self, now: float) -> None:
        """Moves those up whose priority has risen."""
        if self._fifo or now < self._aged + self._ageing_s / SORTS:
            return
        self._aged = now
        for name, line in self._lines.items():
            self._lines[name] = sorted(self._key(key[-1]) for key in line)
        self._keys = {key[-1].id: key for line in self._lines.values() for key in line}

    def add(self, ticket: Ticket) -> None:
        """Puts a ticket in its place."""
        key = self._keys[ticket.id] = self._key(ticket)
        insort(self._lines.setdefault(ticket.tier_name, []), key)
        if ticket.expires < math.inf:
            insort(self._expiries, (ticket.expires, ticket.id, ticket))

    def remove(self, ticket: Ticket) -> bool:
        """Takes a ticket out; False: it was not here."""
        key = self._keys.pop(ticket.id, None)
        if key is None:
            return False
        line = self._lines[ticket.tier_name]
        del line[bisect_left(line, key)]
        if not line:
            del self._lines[ticket.tier_name]
        if ticket.expires < math.inf:
            del self._expiries[bisect_left(self._expiries, (ticket.expires, ticket.id))]
        return True

    def before(self, ticket: Ticket) -> list[list[Key]]:
        """Those that a newcomer would find before it, one list a tier; its own ends with it."""
        key = self._key(ticket)
        lines = {name: line[: bisect_left(line, key)] for name, line in self._lines.items()}
        lines.setdefault(ticket.tier_name, []).append(key)
        return [line for line in lines.values() if line]

    def last(self) -> Ticket | None:
        """The ticket that would go last."""
        return max(line[-1] for line in self._lines.values())[-1] if self._lines else None

    def rank(self, ticket: Ticket, now: float) -> float:
        """A ticket's priority at a time: its own, and what waiting added."""
        if self._fifo:
            return 0.0
        return ticket.priority + max(0.0, (now - ticket.arrived) // self._ageing_s)

    def expiring(self, before: float) -> list[Ticket]:
        """Those that expire before a time, the earliest first."""
        end = bisect_left(self._expiries, (before,))
        return [ticket for _, _, ticket in self._expiries[:end]]

    def _key(self, ticket: Ticket) -> Key:
        if self._fifo:
            return 0.0, 0.0, 0.0, ticket.id, ticket
        return -self.rank(ticket, self._aged), ticket.ttft_deadline, ticket.arrived, ticket.id, ticket
