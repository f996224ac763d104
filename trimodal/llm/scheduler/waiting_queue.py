"""Orders the tickets that wait: by priority, then by deadline, and by waiting, so that nobody starves.

A ticket's place is fixed when it comes and does not change with time. Tickets are kept in one sorted list a
tier, so that a tier that is short of its share of KV blocks is passed over as a whole.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Iterator

from trimodal.llm.scheduler.ticket import Ticket

Key = tuple[float, float, int, Ticket]


class WaitingQueue:
    """Tickets that wait. Times are seconds of the owner's clock, absolute.

    Args:
        ageing_s: seconds of waiting that count as much as one priority: a newcomer goes before a ticket that
            is n priorities lower, unless that has waited for n · ageing_s already. Within a priority the
            earlier deadline goes first; none, or one further off, counts as `ageing_s` after arrival.
        fifo: only the order of coming counts, which is that of the ids.
    """

    def __init__(self, ageing_s: float, fifo: bool = False) -> None:
        self._ageing_s = ageing_s
        self._fifo = fifo
        self._keys: dict[int, Key] = {}
        self._lines: dict[str, list[Key]] = {}
        self._expiries: list[tuple[float, int, Ticket]] = []

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Ticket]:
        return (key[-1] for key in heapq.merge(*self._lines.values()))

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

    def heads(self) -> list[Ticket]:
        """The first of each tier, in order."""
        return [key[-1] for key in sorted(line[0] for line in self._lines.values())]

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
        """The priority of a newcomer that would go level with a ticket: its own, and what waiting added."""
        if self._fifo:
            return 0.0
        return ticket.priority + max(0.0, (now - ticket.arrived) // self._ageing_s)

    def expiring(self, before: float) -> list[Ticket]:
        """Those that expire before a time, the earliest first."""
        end = bisect_left(self._expiries, (before,))
        return [ticket for _, _, ticket in self._expiries[:end]]

    def _key(self, ticket: Ticket) -> Key:
        if self._fifo:
            return 0.0, 0.0, ticket.id, ticket
        due = min(ticket.ttft_deadline, ticket.arrived + self._ageing_s)
        return due - ticket.priority * self._ageing_s, ticket.arrived, ticket.id, ticket
