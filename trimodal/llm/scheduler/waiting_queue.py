"""Orders the tickets that wait: by priority, which rises with waiting, then by deadline, then by arrival.

Where several tenants wait, those of one priority take turns by deficit round robin over tokens: who floods
the queue waits for itself. Tickets are kept in one sorted list a tier, so that a tier that is short of its
share of KV blocks is passed over as a whole.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from itertools import takewhile

from trimodal.llm.scheduler.ticket import Ticket

Key = tuple[float, int, float, float, int, Ticket]

# Raised priorities are sorted in so often in each `ageing_s`: once a rise of each ticket would cost n² of n.
SORTS = 20
QUANTUM = 512  # tokens of a tenant in a round, in which the earliest deadline goes first


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
        self._expiries: list[tuple[float, int, Ticket]] = []  # sorted: each step of the engine asks
        self._tenants: Counter[str] = Counter()  # how many of each wait
        self._used: dict[str, float] = {}  # tokens that count against a tenant's next turns
        self._turns = False  # tenants take turns in the present order

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Ticket]:
        return self.passing(())

    def passing(self, short: Container[str]) -> Iterator[Ticket]:
        """All in order, but no more of a tier once it is in `short`, which may grow meanwhile."""
        lines = self._lines.values()
        going = (takewhile(lambda key: key[-1].tier_name not in short, line) for line in lines)
        return (key[-1] for key in heapq.merge(*going))

    def age(self, now: float) -> None:
        """Moves those up whose priority has risen."""
        if self._fifo or now < self._aged + self._ageing_s / SORTS:
            return
        self._aged = now
        self._sort(self)

    def add(self, ticket: Ticket) -> None:
        """Puts a ticket in its place."""
        self._used[ticket.tenant] = self._claim(ticket.tenant)
        self._tenants[ticket.tenant] += 1
        if self._turns or len(self._tenants) > 1:
            self._sort([*self, ticket])
        else:
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
        self._tenants -= Counter([ticket.tenant])
        if not self._tenants:
            self._used.clear()
            self._turns = False
        return True

    def charge(self, ticket: Ticket, tokens: float) -> None:
        """Counts tokens against the next turns of a ticket's tenant."""
        if ticket.tenant in self._used:
            self._used[ticket.tenant] += tokens

    def before(self, ticket: Ticket) -> list[list[Key]]:
        """Those that a newcomer would find before it, one list a tier; its own ends with it."""
        if self._turns or ticket.tenant not in self._tenants:
            keys = self._ordered([*self, ticket])
            key = next(key for key in keys if key[-1] is ticket)
            lines = _by_tier(keys)
        else:
            key, lines = self._key(ticket), self._lines
        before = {name: line[: bisect_left(line, key)] for name, line in lines.items()}
        before.setdefault(ticket.tier_name, []).append(key)
        return [line for line in before.values() if line]

    def last(self) -> Ticket | None:
        """The ticket that would go last."""
        return max(line[-1] for line in self._lines.values())[-1] if self._lines else None

    def loser(self, ticket: Ticket, now: float) -> Ticket | None:
        """Who makes room for a newcomer: the last, if its priority is lower, or its turn is later."""
        last = self.last()
        if not last or self.rank(last, now) < self.rank(ticket, now):
            return last
        if self._fifo or last.tenant == ticket.tenant or last.priority > ticket.priority:
            return None
        turns = {key[-1].id: key[1] for key in self._ordered([*self, ticket])}
        return last if turns[last.id] > turns[ticket.id] else None

    def rank(self, ticket: Ticket, now: float) -> float:
        """A ticket's priority at a time: its own, and what waiting added."""
        if self._fifo:
            return 0.0
        return ticket.priority + max(0.0, (now - ticket.arrived) // self._ageing_s)

    def expiring(self, before: float) -> list[Ticket]:
        """Those that expire before a time, the earliest first."""
        end = bisect_left(self._expiries, (before,))
        return [ticket for _, _, ticket in self._expiries[:end]]

    def _claim(self, tenant: str) -> float:
        """What counts against a tenant: who comes back has no claim to the time when it wanted nothing."""
        least = min((self._used[each] for each in self._tenants), default=0.0)
        return max(least, self._used.get(tenant, least))

    def _sort(self, tickets: Iterable[Ticket]) -> None:
        keys = self._ordered(list(tickets))
        self._keys = {key[-1].id: key for key in keys}
        self._lines = _by_tier(keys)
        self._turns = len(self._tenants) > 1
        least = min((self._used[each] for each in self._tenants), default=0.0)
        for name in [name for name, used in self._used.items() if used <= least]:
            if name not in self._tenants:
                del self._used[name]

    def _ordered(self, tickets: list[Ticket]) -> list[Key]:
        """The keys of all, in order."""
        keys = sorted(map(self._key, tickets))
        tenants = {ticket.tenant for ticket in tickets}
        if self._fifo or len(tenants) < 2:
            return keys
        used = {tenant: self._claim(tenant) for tenant in tenants}
        turns = []
        for key in keys:
            ticket = key[-1]
            used[ticket.tenant] += ticket.prompt_cost + ticket.answer_cost
            turns.append((math.ceil(used[ticket.tenant] / QUANTUM), key))
        # Age counts between priorities only, else a flood that waits long would go before a newcomer of
        # another tenant: who is due before an older one of its priority is as urgent as that.
        urgency: dict[int, float] = {}
        ordered: list[Key] = []
        for turn, key in sorted(turns, reverse=True):
            priority = key[-1].priority
            urgency[priority] = min(urgency.get(priority, math.inf), key[0])
            ordered.append((urgency[priority], turn, *key[2:]))
        return sorted(ordered)

    def _key(self, ticket: Ticket) -> Key:
        if self._fifo:
            return 0.0, 0, 0.0, 0.0, ticket.id, ticket
        return -self.rank(ticket, self._aged), 0, ticket.ttft_deadline, ticket.arrived, ticket.id, ticket


def _by_tier(keys: Iterable[Key]) -> dict[str, list[Key]]:
    lines: dict[str, list[Key]] = {}
    for key in keys:
        lines.setdefault(key[-1].tier_name, []).append(key)
    return lines
