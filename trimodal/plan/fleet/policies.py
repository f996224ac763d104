"""Chooses a replica for each request, as balancers do.

round_robin        in turn
least_connections  the one that has least; of equals the one that has waited longest for more
random             any
random_of_two      of two drawn at random the one that has less (power of two choices)
affinity           the gateway's rule, by its own code (`trimodal/gateway/upstreams/affinity.py`): prompts
                   that begin alike go to one replica by rendezvous hashing; one that has four requests and
                   1.25 times the mean is passed over

A count is of requests that were sent and have not ended, as one balancer knows it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, get_args

from trimodal.gateway.upstreams.affinity import most_running, ranked
from trimodal.plan.fleet.prefixes import Key

Policy = Literal["round_robin", "least_connections", "random", "random_of_two", "affinity"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
_NEAR = 16  # places of a ranking that are kept; more are looked at when all of them are full


class Backend(Protocol):
    """What is known of a replica: its name, and the requests that it has."""

    address: str
    running: int


class Balancer:
    """Counts what each backend has, and picks one.

    Attributes:
        able: those that may get requests.
        total: requests that all able ones have together.
    """

    def __init__(self) -> None:
        self.able: list[Backend] = []
        self.total = 0

    def pick(self, prefix: Key | None) -> Backend:
        """The backend for a request; there is one at least."""
        raise NotImplementedError

    def change(self, able: Sequence[Backend]) -> None:
        """Takes in who may get requests from now on."""
        self.able = list(able)
        self.total = sum(backend.running for backend in able)

    def took(self, backend: Backend) -> None:
        """A backend has one request more."""
        backend.running += 1
        self.total += 1

    def left(self, backend: Backend, able: bool) -> None:
        """A backend has one request less. `able`: it may get requests."""
        backend.running -= 1
        if able:
            self.total -= 1


class RoundRobin(Balancer):
    """In turn."""

    _turn = -1

    def pick(self, prefix: Key | None) -> Backend:
        self._turn = (self._turn + 1) % len(self.able)
        return self.able[self._turn]


class LeastConnections(Balancer):
    """The one with the fewest requests, found without looking at all of them."""

    def __init__(self) -> None:
        super().__init__()
        # Number of requests → those that have so many, in the order in which they came to it.
        self._by_count: list[dict[Backend, None]] = [{}]
        self._least = 0

    def pick(self, prefix: Key | None) -> Backend:
        while not self._by_count[self._least]:
            self._least += 1
        return next(iter(self._by_count[self._least]))

    def change(self, able: Sequence[Backend]) -> None:
        super().change(able)
        self._by_count = [{} for _ in range(max((one.running for one in able), default=0) + 2)]
        for backend in able:
            self._by_count[backend.running][backend] = None
        self._least = 0

    def took(self, backend: Backend) -> None:
        self._move(backend, 1)
        super().took(backend)

    def left(self, backend: Backend, able: bool) -> None:
        if able:
            self._move(backend, -1)
        super().left(backend, able)

    def _move(self, backend: Backend, by: int) -> None:
        count = backend.running
        del self._by_count[count][backend]
        if count + by == len(self._by_count):
            self._by_count.append({})
        self._by_count[count + by][backend] = None
        self._least = min(self._least, count + by)


class Random(Balancer):
    """Any of them."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng

    def pick(self, prefix: Key | None) -> Backend:
        return self._any()

    def _any(self) -> Backend:
        return self.able[int(self._rng.random() * len(self.able))]


class RandomOfTwo(Random):
    """The one of two that has less."""

    def pick(self, prefix: Key | None) -> Backend:
        one, other = self._any(), self._any()
        return other if other.running < one.running else one


class Affinity(Random):
    """The one that has the prompt's beginning, unless it has much more than its share.

    Attributes:
        kept, passed_on: prompts that went to the replica of their beginning, and those for which it had no
            room.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._named: dict[str, Backend] = {}
        self._ranks: dict[Key, list[str]] = {}
        self.kept = self.passed_on = 0

    def change(self, able: Sequence[Backend]) -> None:
        super().change(able)
        named = {backend.address: backend for backend in able}
        joined = [address for address in named if address not in self._named]
        self._named = named
        # A ranking stays right where one leaves; those that join are sorted in among the best.
        for prefix, places in self._ranks.items():
            left = [address for address in places if address in named]
            if joined and left:
                ordered = ranked(_bytes(prefix), [*left, *joined])
                # Behind the last one known there may be others: what sorts in there is not known.
                left = ordered[: ordered.index(left[-1]) + 1][:_NEAR]
            self._ranks[prefix] = left
        self._ranks = {prefix: places for prefix, places in self._ranks.items() if places}

    def pick(self, prefix: Key | None) -> Backend:
        most = most_running(self.total, len(self.able))
        if prefix is None:  # a beginning of its own ranks the replicas at random
            first = self._any()
            if first.running < most:
                return first
            with_room = [backend for backend in self.able if backend.running < most]
            return self._rng.choice(with_room) if with_room else first
        places = self._ranks.get(prefix)
        if places is None:
            places = self._ranks[prefix] = ranked(_bytes(prefix), list(self._named))[:_NEAR]
        named = self._named
        first = named[places[0]]
        if first.running < most:
            self.kept += 1
            return first
        self.passed_on += 1
        for address in places:
            if named[address].running < most:
                return named[address]
        order = ranked(_bytes(prefix), list(named))
        return next((named[address] for address in order if named[address].running < most), first)


def make_balancer(policy: Policy, rng: random.Random) -> Balancer:
    """The balancer of this name."""
    makers: dict[Policy, Callable[[], Balancer]] = {
        "round_robin": RoundRobin,
        "least_connections": LeastConnections,
        "random": lambda: Random(rng),
        "random_of_two": lambda: RandomOfTwo(rng),
        "affinity": lambda: Affinity(rng),
    }
    return makers[policy]()


def _bytes(prefix: Key) -> bytes:
    return str(prefix).encode()
