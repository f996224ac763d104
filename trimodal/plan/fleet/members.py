"""Starts, drains, restarts and ends simulated replicas, and counts how long they were ready and paid for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Literal

from trimodal.plan.fleet.engine import Engine, Sequence
from trimodal.plan.fleet.plans import Plan
from trimodal.plan.fleet.policies import Balancer

State = Literal["warm", "starting", "ready", "draining", "gone"]
Later = Callable[[float, Callable[[float], None]], None]


class Replica:
    """One replica.

    Attributes:
        running: requests that the balancer sent and that have not ended.
        then: what is to happen when a draining one is empty.
        spare: it starts for the warm pool.
    """

    __slots__ = ("address", "engine", "paid_from", "ready_from", "running", "spare", "state", "then")

    def __init__(self, address: str, engine: Engine, now: float) -> None:
        self.address = address
        self.engine = engine
        self.running = 0
        self.state: State = "starting"
        self.paid_from = now
        self.ready_from = -1.0
        self.then: Callable[[float], None] | None = None
        self.spare = False


class Members:
    """All replicas of a plan.

    Args:
        later: calls a function at a time. lose: takes the requests of a replica that dies.
        seconds: how long arrivals last: what is later is not counted.
        addresses: of the first replicas; the others are numbered.

    Attributes:
        ready, paid: replica-seconds. timeline: (second, ready, paid for) at every change.
    """

    def __init__(
        self,
        plan: Plan,
        balancer: Balancer,
        make: Callable[[], Engine],
        later: Later,
        lose: Callable[[Replica, list[Sequence], float], None],
        seconds: float,
        addresses: Iterable[str] = (),
    ) -> None:
        self._figures = plan.replica
        self._balancer, self._make, self._later, self._lose = balancer, make, later, lose
        self._seconds = seconds
        numbered = (f"replica-{number}:8001" for number in itertools.count(1))
        self._addresses = itertools.chain(addresses, numbered)
        self.all: list[Replica] = []
        self.ready = self.paid = 0.0
        self.timeline: list[tuple[float, int, int]] = []
        for _ in range(plan.replicas):
            self._new(0.0).state = "ready"
        for _ in range(plan.autoscaler.warm if plan.autoscaler else 0):
            self._new(0.0).state = "warm"
        for replica in self.all:
            replica.ready_from = 0.0 if replica.state == "ready" else -1.0
        self._changed(0.0)

    @property
    def serving(self) -> list[Replica]:
        """Those that get requests, the oldest first."""
        return [one for one in self.all if one.state == "ready"]

    @property
    def current(self) -> int:
        """Those that count for an autoscaler: they serve, start or are restarted."""
        return sum(
            one.state in ("ready", "starting") and not one.spare or one.then is not None for one in self.all
        )

    def scale(self, count: int, now: float) -> None:
        """Starts or ends replicas until `current` is `count`."""
        for _ in range(self.current, count):
            self._start(now)
        surplus = self.current - count
        if surplus > 0:
            # Those that do not serve yet go first, then the youngest, whose caches are the emptiest.
            starting = [one for one in self.all if one.state == "starting" and not one.spare]
            for replica in [*reversed(starting), *reversed(self.serving)][:surplus]:
                if replica.state == "starting":
                    self._end(replica, now)
                else:
                    self.drain(replica, now, None)

    def drain(self, replica: Replica, now: float, then: Callable[[float], None] | None) -> None:
        """Sends no more requests to a replica; when it is empty it ends, or `then` is called."""
        replica.state = "draining"
        replica.then = then
        self._changed(now)
        if not replica.running:
            self.emptied(replica, now)

    def emptied(self, replica: Replica, now: float) -> None:
        """A draining replica has no request any more."""
        self._unready(replica, now)
        if replica.then:
            then, replica.then = replica.then, None
            then(now)
        else:
            self._end(replica, now)

    def kill(self, replica: Replica, now: float, *, restart: bool) -> None:
        """Ends a replica with all that it has."""
        replica.engine.cut(now)
        lost = replica.engine.die()
        self._unready(replica, now)
        then, replica.then = replica.then, None
        replica.state = "gone"
        self._changed(now)
        self._lose(replica, lost, now)
        if then:
            then(now)
        elif restart:
            self.restart(replica, now)
        else:
            self._end(replica, now)

    def restart(
        self, replica: Replica, now: float, joined: Callable[[float], None] = lambda now: None
    ) -> None:
        """Starts an ended process anew, without its cache; `joined` is called when it serves again."""
        replica.engine.die()
        replica.state = "starting"

        def join(at: float) -> None:
            if replica.state == "starting":
                self._join(replica, at)
            joined(at)

        self._later(now + self._figures.cold_start_s, join)
        self._changed(now)

    def finish(self, now: float) -> None:
        """Counts what is still there at the end."""
        for replica in list(self.all):
            self._unready(replica, now)
            self.paid += self._within(replica.paid_from, now)

    def _start(self, now: float) -> None:
        """Takes a replica of the warm pool and orders another for it, or starts a cold one."""
        warm = next((one for one in self.all if one.state == "warm"), None)
        replica = warm or self._new(now)
        replica.state = "starting"
        figures = self._figures
        self._join_after(replica, now + (figures.warm_start_s if warm else figures.cold_start_s))
        if warm:
            spare = self._new(now)
            spare.spare = True
            self._join_after(spare, now + figures.cold_start_s)
        self._changed(now)

    def _join_after(self, replica: Replica, at: float) -> None:
        self._later(at, lambda now: self._join(replica, now) if replica.state == "starting" else None)

    def _join(self, replica: Replica, now: float) -> None:
        if replica.spare:
            replica.spare, replica.state = False, "warm"
            return
        replica.state = "ready"
        replica.ready_from = now
        self._changed(now)

    def _new(self, now: float) -> Replica:
        replica = Replica(next(self._addresses), self._make(), now)
        self.all.append(replica)
        return replica

    def _end(self, replica: Replica, now: float) -> None:
        self._unready(replica, now)
        replica.state = "gone"
        self.paid += self._within(replica.paid_from, now)
        self.all.remove(replica)
        self._changed(now)

    def _unready(self, replica: Replica, now: float) -> None:
        if replica.ready_from >= 0:
            self.ready += self._within(replica.ready_from, now)
            replica.ready_from = -1.0

    def _within(self, begin: float, end: float) -> float:
        return max(0.0, min(end, self._seconds) - min(begin, self._seconds))

    def _changed(self, now: float) -> None:
        serving = self.serving
        if serving != self._balancer.able:
            self._balancer.change(serving)
        timeline, counts = self.timeline, (len(serving), len(self.all))
        if timeline and timeline[-1][0] == now:
            timeline.pop()
        if not timeline or timeline[-1][1:] != counts:
            timeline.append((now, *counts))
