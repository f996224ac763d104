"""The order of those who wait: class, then earliest deadline, then arrival; a class rises with waiting.

Each step costs little at thousands of tickets: lists stay sorted, one a tier, so that a tier that may
not go now is passed over as a whole. Who may go is decided elsewhere.
"""

from __future__ import annotations

import heapq
import itertools
import math
from bisect import bisect_left, insort
from collections.abc import Iterator

from trimodal.llm.scheduler.ticket import Ticket

Key = tuple[float, float, float, int, Ticket]


class WaitingQueue:
    """Tickets that wait. Times are the owner's clock, absolute.

    Args:
        ageing_s: each so long a wait raises a ticket's class by one. As the class has no upper end, whoever
            waits overtakes all newcomers at last: nobody starves.
        fifo: nothing but the order of coming counts.
    """

    def __init__(self, ageing_s: float, fifo: bool = False) -> None:
        self._ageing_s = ageing_s
        self._fifo = fifo
        self._count = itertools.count()
        self._keys: dict[int, Key] = {}
        self._lines: dict[str, list[Key]] = {}
        self._rises: list[tuple[float, int, Key]] = []
        self._expiries: list[tuple[float, int, Ticket]] = []

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, ticket: Ticket) -> bool:
        return ticket.id in self._keys

    def __iter__(self) -> Iterator[Ticket]:
        return (key[-1] for key in heapq.merge(*self._lines.values()))

    def add(self, ticket: Ticket, now: float) -> None:
        """Puts a ticket in its place."""
        self._insert(ticket, next(self._count), now)
        if ticket.expires < math.inf:
            insort(self._expiries, (ticket.expires, ticket.id, ticket))

    def remove(self, ticket: Ticket) -> bool:
        """Takes a ticket out; False: it was not here."""
        key = self._keys.get(ticket.id)
        if key is None:
            return False
        self._take(key)
        if ticket.expires < math.inf:
            del self._expiries[bisect_left(self._expiries, (ticket.expires, ticket.id))]
        return True

    def change(self, ticket: Ticket, priority: int, ttft_deadline: float, expires: float, now: float) -> None:
        """Gives a waiting ticket other terms; it keeps its place among equals."""
        count = self._keys[ticket.id][3]
        self.remove(ticket)
        ticket.priority, ticket.ttft_deadline, ticket.expires = priority, ttft_deadline, expires
        self._insert(ticket, count, now)
        if expires < math.inf:
            insort(self._expiries, (expires, ticket.id, ticket))

    def age(self, now: float) -> int:
        """Moves those up whose class has risen by now; says how many did."""
        risen = 0
        while self._rises and self._rises[0][0] <= now:
            _, _, key = heapq.heappop(self._rises)
            if self._keys.get(key[-1].id) is key:  # else it left or moved meanwhile
                self._take(key)
                self._insert(key[-1], key[3], now)
                risen += 1
        return risen

    def heads(self) -> list[Ticket]:
        """The first of each tier, in order."""
        return [key[-1] for key in sorted(line[0] for line in self._lines.values())]

    def before(self, ticket: Ticket, now: float) -> list[list[Key]]:
        """Those that a ticket would find before it if it came now, one list a tier; its own ends with it."""
        key = self._key(ticket, self._keys[ticket.id][3] if ticket in self else next(self._count), now)
        lines = {name: line[: bisect_left(line, key)] for name, line in self._lines.items()}
        lines.setdefault(self._line(ticket), []).append(key)
        return [line for line in lines.values() if line]

    def last(self) -> Ticket | None:
        """The ticket that would go last."""
        return max(line[-1] for line in self._lines.values())[-1] if self._lines else None

    def rank(self, ticket: Ticket, now: float) -> float:
        """A ticket's class now: priority, and what waiting added."""
        if self._fifo:
            return 0.0
        return ticket.priority + max(0.0, (now - ticket.arrived) // self._ageing_s)

    def expiring(self, before: float) -> list[Ticket]:
        """Those that expire before a time, the earliest first."""
        end = bisect_left(self._expiries, (before,))
        return [ticket for _, _, ticket in self._expiries[:end]]

    def _key(self, ticket: Ticket, count: int, now: float) -> Key:
        if self._fifo:
            return 0.0, 0.0, 0.0, count, ticket
        return -self.rank(ticket, now), ticket.ttft_deadline, ticket.arrived, count, ticket

    def _line(self, ticket: Ticket) -> str:
        return "" if self._fifo else ticket.tier_name

    def _insert(self, ticket: Ticket, count: int, now: float) -> None:
        key = self._keys[ticket.id] = self._key(ticket, count, now)
        insort(self._lines.setdefault(self._line(ticket), []), key)
        if not self._fifo:
            steps = max(0.0, (now - ticket.arrived) // self._ageing_s) + 1
            # Never now again, should a step be lost in the clock's rounding.
            rise = max(ticket.arrived + steps * self._ageing_s, math.nextafter(now, math.inf))
            heapq.heappush(self._rises, (rise, next(self._count), key))
        if len(self._rises) > 64 + 4 * len(self._keys):
            # Those that left are only dropped as their time comes: under a short-lived load that is too late.
            self._rises = [rise for rise in self._rises if self._keys.get(rise[2][-1].id) is rise[2]]
            heapq.heapify(self._rises)

    def _take(self, key: Key) -> None:
        ticket = key[-1]
        name = self._line(ticket)
        line = self._lines[name]
        del line[bisect_left(line, key)]
        if not line:
            del self._lines[name]
        del self._keys[ticket.id]
